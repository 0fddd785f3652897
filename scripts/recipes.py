"""Run every recipe of the papers and record what each took.

    python scripts/recipes.py FOLDER --limit 50 --data ../shared/data                   # a smoke run of all recipes
    python scripts/recipes.py FOLDER --data ../shared/data --models MODELS              # the papers' own sample sizes
    python scripts/recipes.py FOLDER --only abnar2020 --device cuda                     # some of them

The full run takes the sample size of the paper where it states one and the data has as many rows, else at most 2,000
(`SIZES`). With --models, `CALLS` replaces the default call of some recipes; a call whose model does not ship is made if
MODELS holds a folder of that name (`scripts/models.sh` trains them). FOLDER/calls has a file for each call with its
command, date and seconds: a call that is there is not made again, and one that was cut off goes on where it stopped.
Several papers may run side by side, each in its process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom.errors import WherefromError
from wherefrom.papers import Result, recipes, reproduce

# The number of examples of a full run; recipes that are not listed run at their default.
SIZES: dict[str, int] = {
    "abnar2020/table1": 2000,
    "abnar2020/table2": 2000,
    "abnar2020/table3": 100,
    "abnar2020/evenness": 2000,
    "alti/table2": 560,  # of masked verbs, some are no single token of the model's vocabulary
    "alti/figure3": 500,
    "alti/figure6": 2000,
    "decompx/aopc": 872,
    "decompx/accuracy": 872,
    "decompx/prediction-performance": 872,
    "globenc/table-a1": 2000,
    "globenc/table-a2": 2000,
    "globenc/table2": 2000,
    "globenc/figure4": 256,
    **dict.fromkeys(
        (f"value-zeroing/{name}" for name in ("table1", "table2", "table3", "figure1", "figure2", "figure3")), 2500
    ),
    "value-zeroing/figure-a1": 300,  # Spearman's distance takes minutes for every hundred
    **dict.fromkeys((f"value-zeroing/figure-a{number}" for number in (2, 3, 4)), 2500),
}
# The most examples of a smoke run, where a handful takes a minute.
SMALL = {"planted-facts/lm": 5, "planted-facts/reader": 5}
# Calls in place of the default one: several datasets, models that do not ship.
HATEXPLAIN = {"model": "hatexplain=hatexplain", "data": "hatexplain", "limit": 2000}
MNLI = {"model": "mnli=mnli", "data": "mnli", "split": "validation_mismatched_1k", "limit": 2000}
QQP = {"model": "qqp=qqp", "data": "qqp", "split": "validation", "limit": 2000}
QA = {"model": "squad_v1=qa", "data": "held_out.json"}  # articles of SQuAD that the model was not trained on
REVIEWS = [
    {"data": "sst2", "split": "test", "limit": 2000},
    {"data": "amazon", "limit": 2000},
    {"data": "yelp", "limit": 500},  # long texts
    {"data": "imdb", "limit": 500},
]
CALLS: dict[str, list[dict[str, Any]]] = {
    "alti/figure7": [{"limit": 500}, {"model": "wherefrom/sentiment,second-sentiment", "limit": 500}],
    "attcat/table1": [*REVIEWS, QQP, MNLI],
    "attcat/table2": [*REVIEWS, QQP, MNLI],
    "attcat/figure3": [{"limit": 500}, {**QA, "limit": 300}],
    "attcat/appendix-k": [{**QA, "limit": 300}],
    "attcat/figure5a": [{"model": "qa"}],
    "globenc/table1": [{"limit": 2000}, HATEXPLAIN, MNLI],
    "globenc/figure3": [{"limit": 2000}, HATEXPLAIN, MNLI],
}


class Call(NamedTuple):
    """One `wherefrom reproduce`."""

    recipe: str
    arguments: dict[str, Any]

    @property
    def command(self) -> str:
        flags = [f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in self.arguments.items()]
        return " ".join(["wherefrom reproduce", self.recipe, *flags])


def list_calls(limit: int | None, models: Path | None, only: list[str]) -> Iterator[Call]:
    """Every call of the run, paper by paper."""
    for recipe in recipes():
        if only and recipe.name not in only and recipe.paper not in only:
            continue
        size = min(limit, SMALL.get(recipe.name, limit)) if limit else SIZES.get(recipe.name)
        default = {"limit": size} if size and recipe.data else {}
        trains = {"train_limit": limit} if limit and recipe.paper == "value-zeroing" and recipe.data else {}
        chosen = CALLS.get(recipe.name) if models else None
        for arguments in chosen or [default]:
            names = [part.rpartition("=")[2] for part in arguments.get("model", "wherefrom/").split(",")]
            if not models or all(name.startswith("wherefrom/") or (models / name).is_dir() for name in names):
                limited = {"limit": limit} if limit and chosen and "limit" in arguments else {}
                yield Call(recipe.name, {**arguments, **limited, **trains})


def run_call(call: Call, out: Path, device: str | None, models: Path | None) -> Result:
    """Make the call; models of `CALLS` are folders in MODELS."""
    arguments = dict(call.arguments)
    if models and "model" in arguments:
        parts = [part.rpartition("=") for part in arguments["model"].split(",")]
        arguments["model"] = ",".join(
            f"{key}{equals}{models / name if (models / name).is_dir() else name}" for key, equals, name in parts
        )
    if models and (models / "squad" / str(arguments.get("data"))).is_file():
        arguments["data"] = str(models / "squad" / arguments["data"])
    result = reproduce(call.recipe, out=out, device=device, **arguments)
    assert isinstance(result, Result)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where tables, pictures and runs are kept")
    parser.add_argument("--limit", type=int, help="examples of every recipe, for a smoke run")
    parser.add_argument("--data", type=Path, help="the folder of datasets (default: WHEREFROM_DATA)")
    parser.add_argument("--models", type=Path, help="a folder of the models that do not ship")
    parser.add_argument("--only", default="", help="papers or recipes, separated by commas")
    parser.add_argument("--matching", default="", help="only calls whose command contains this text")
    parser.add_argument("--device")
    given = parser.parse_args()
    if given.data:
        os.environ["WHEREFROM_DATA"] = str(given.data)
    calls = given.folder / "calls"
    calls.mkdir(parents=True, exist_ok=True)
    failed = []
    for call in list_calls(given.limit, given.models, [name for name in given.only.split(",") if name]):
        if given.matching not in call.command:
            continue
        record = calls / f"{hashlib.sha256(call.command.encode()).hexdigest()[:12]}.json"
        if record.is_file():
            continue
        print(f"== {call.command}", flush=True)
        start = time.perf_counter()
        try:
            result = run_call(call, given.folder, given.device, given.models)
        except WherefromError as error:
            failed.append(call.command)
            print(f"failed: {error}", flush=True)
            continue
        except Exception:
            failed.append(call.command)
            traceback.print_exc()
            continue
        seconds = round(time.perf_counter() - start, 1)
        entry = {
            "recipe": call.recipe,
            "command": call.command,
            "date": date.today().isoformat(),
            "seconds": seconds,
            "device": given.device or "cpu",
        }
        record.write_text(json.dumps(entry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"   {seconds} s: {result.table.sources}", flush=True)
    made = len(list(calls.glob("*.json")))
    print(f"{made} calls made, {len(failed)} failed" + "".join(f"\n  {command}" for command in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
