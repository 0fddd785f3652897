"""How much of what each method says falls where the class is shown: every method, with intervals, on two datasets.

    PYTHONPATH=src WHEREFROM_DATA=FOLDER python bench/focus.py [--methods attn-lrp,…] [--out runs] [--write]

FOLDER holds cifar10/test.parquet. `focus` and `pointing` on the first pictures of "drawn" and `focus` on those of
"mosaics:cifar10" whose class the model predicts, their label being the target. Methods that take seconds for a picture
are measured on a sixth of them; maps of pairs are left out, as [CLS] has no pixels and its row is ablation. A run that
was stopped goes on in the same --out. --write puts the table into docs/pictures.md.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from written import put

import wherefrom
from wherefrom.data import Dataset, Example, read
from wherefrom.errors import WherefromWarning
from wherefrom.method import lookup, methods, presets

PAGE = Path(__file__).resolve().parents[1] / "docs" / "pictures.md"
DEAR = ("hta", "hta-x-input", "context-cite")
SIXTH = 6
METHODS = [each.name for each in (*presets(), *methods()) if not lookup(each.name)[0].pairs]
ASKED = {"drawn": (400, ["focus", "pointing"]), "mosaics:cifar10": (600, ["focus"])}  # pictures at most, and metrics
Row = dict[tuple[str, str], str]


def predicted(opened: wherefrom.Model, name: str, most: int) -> tuple[list[Example], int]:
    """The pictures whose class the model predicts, and of how many."""
    every = list(itertools.islice(read(name), most))
    found = wherefrom.explain([each.image for each in every], opened, method="random", batch_size=50)
    return [each for each, told in zip(every, found, strict=True) if told.prediction == each.label], len(every)


def measured(opened: wherefrom.Model, methods: Sequence[str], right: Sequence[Example], name: str, out: Path) -> Row:
    """By method and metric, the mean and its interval."""
    data = Dataset(name, "test", lambda: iter(right))
    run = wherefrom.evaluate(
        data, opened, methods=methods, metrics=ASKED[name][1], batch_size=16, target="label", out=out
    )
    return {
        (key.method, f"{name}: {key.metric}"): f"{found.mean:.2f} ± {found.interval:.2f}"
        for key, found in run.summary.items()
        if key.layer is None
    }


def table(rows: Row) -> str:
    """The best on drawn pictures first."""
    columns = [f"{name}: {metric}" for name, (_, metrics) in ASKED.items() for metric in metrics]
    order = sorted({method for method, _ in rows}, key=lambda method: rows.get((method, columns[0]), ""), reverse=True)
    lines = [
        "| " + " | ".join([f"`{method}`{' *' * (method in DEAR)}", *(rows.get((method, each), "") for each in columns)])
        for method in order
    ]
    return "\n".join(
        [
            "| method | " + " | ".join(columns) + " |",
            "|---" * (1 + len(columns)) + "|",
            *(f"{each} |" for each in lines),
        ]
    )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--model", default="wherefrom/picture")
    asked.add_argument("--methods", default=",".join(METHODS))
    asked.add_argument("--pictures", type=int, default=60)
    asked.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "wherefrom-focus")
    asked.add_argument("--write", action="store_true", help="put the table into docs/pictures.md")
    given = asked.parse_args()
    warnings.simplefilter("ignore", WherefromWarning)
    torch.set_num_threads(1)
    opened = wherefrom.open_model(given.model)
    rows: Row = {}
    said = []
    for name, (most, _) in ASKED.items():
        right, of = predicted(opened, name, most)
        said.append(f"the {len(right)} that it predicts among the first {of} of `{name}`")
        print("predicted:", said[-1], flush=True)
        for method in given.methods.split(","):
            some = right[: max(1, given.pictures // SIXTH) if method in DEAR else given.pictures]
            folder = given.out / f"{name.replace(':', '-')}-{method}"
            rows |= measured(opened, [method], some, name, folder)
            print(method, [value for (each, _), value in rows.items() if each == method], flush=True)
    counts = f"The first {given.pictures} (* {given.pictures // SIXTH}) of {' and of '.join(said)}:"
    text = f"{counts}\n\n{table(rows)}"
    print(text)
    if given.write:
        put("focus", text, PAGE)


if __name__ == "__main__":
    main()
