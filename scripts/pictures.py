"""The pictures of the documentation, made by the shipped models: python scripts/pictures.py

Each is what the terminal shows, recorded as SVG. Times are left out: a picture changes only when an answer does.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

import whence
from whence.explanation import Explanation
from whence.view.terminal import show

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "img"
# AttCAT, figure 5b, and Value Zeroing, figure 4.
REVIEW = "i really didn ' t like this movie . some of the actors were good , but overall the movie was boring ."
HAT = "the pictures of some hat [MASK] scaring marcus ."


def picture(name: str, explanations: Sequence[Explanation], *, width: int, layers: bool = False, title: str) -> None:
    console = Console(
        width=width,
        record=True,
        force_terminal=True,
        color_system="truecolor",
        file=io.StringIO(),
        legacy_windows=False,
    )
    show([replace(each, seconds=0.0) for each in explanations], layers=layers, console=console)
    IMAGES.mkdir(parents=True, exist_ok=True)
    # A fixed id instead of a random one: the same answer gives the same file.
    console.save_svg(str(IMAGES / f"{name}.svg"), title=title, unique_id=f"whence-{name}")
    print(f"docs/img/{name}.svg")


def main() -> None:
    methods = ["attcat", "transformer-attribution", "raw-attention", "attention-rollout", "globenc", "alti", "ablation"]
    compared = whence.compare(REVIEW, methods=methods)
    picture(
        "compare", list(compared.values()), width=112, title=f"whence compare … --methods {','.join(methods[:3])},…"
    )
    single = whence.explain("a deep and meaningful film .")
    picture("explain", [single], width=112, layers=True, title='whence explain "a deep and meaningful film ." --layers')
    zeroed = whence.explain(HAT, model="whence/mlm", method="value-zeroing", target="were", foil="is")
    picture("maps", [zeroed], width=176, layers=True, title="whence explain … --method value-zeroing --layers")


if __name__ == "__main__":
    main()
