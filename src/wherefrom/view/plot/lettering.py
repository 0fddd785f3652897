"""Letters of any script: which fonts draw a text, and what stands for letters that no font here has.

A token is text, never markup: no mathematics between dollar signs, no TeX, whatever the user's settings say.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from unicodedata import bidirectional, category

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

INCH = 72.0  # points
FINE = 300.0  # pixels of an inch for measuring: at fewer, letters snap to the grid and widths are off
LONGEST = 32  # letters of a label


def plain(text: str, size: float, **style: Any) -> dict[str, Any]:
    """The arguments that make matplotlib draw `text` as it is, `size` points high."""
    return _plain(text, size, _chosen(), style)


def extent(text: str, size: float, **style: Any) -> tuple[float, float]:
    """Width and height of a text in inches."""
    return _extent(text, size, tuple(sorted(style.items())), _chosen())


def widest(texts: list[str], size: float, **style: Any) -> float:
    return max((extent(text, size, **style)[0] for text in texts), default=0.0)


def short(text: str, most: int = LONGEST) -> str:
    """A label, as it will be drawn, without its middle if it is long."""
    shown = _drawable(text, _chosen())[0]
    return shown if len(shown) <= most else f"{shown[: most - 5]}…{shown[-4:]}"


def right_to_left(text: str) -> bool:
    """Whether most letters of a text belong to a script that is written from the right."""
    ways = [bidirectional(letter) for letter in text]
    return sum(way in ("R", "AL") for way in ways) > sum(way == "L" for way in ways)


def _plain(text: str, size: float, chosen: tuple[str, ...], style: dict[str, Any]) -> dict[str, Any]:
    shown, families = _drawable(text, chosen)
    return {"s": shown, "fontfamily": list(families), "fontsize": size, "parse_math": False, "usetex": False, **style}


def _chosen() -> tuple[str, ...]:
    """The fonts of the user's settings, and the one that comes with matplotlib."""
    return (*mpl.rcParams["font.family"], "DejaVu Sans")


@lru_cache(maxsize=8192)
def _drawable(text: str, chosen: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """A text with escapes for what cannot be drawn, and the fonts that draw the rest, the chosen ones first."""
    families = list(chosen)
    shown = []
    for letter in text:
        if category(letter) in ("Cc", "Cs", "Zl", "Zp") or bidirectional(letter) in OVERRIDES:
            shown.append(_escape(letter))
        elif category(letter) == "Cf" or any(ord(letter) in _letters(family) for family in families):
            shown.append(letter)
        elif (family := _family_with(letter)) is None:
            shown.append(_escape(letter))
        else:
            shown.append(letter)
            families.append(family)
    return "".join(shown), tuple(families)


OVERRIDES = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")  # they would turn around other tokens


def _escape(letter: str) -> str:
    """As Python writes it: \\n, \\u4e2d."""
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")


@lru_cache(maxsize=64)
def _letters(family: str) -> frozenset[int]:
    return _charmap(findfont(FontProperties(family=[family])))


@lru_cache(maxsize=2048)
def _charmap(path: str) -> frozenset[int]:
    return frozenset(FT2Font(path).get_charmap())


@lru_cache(maxsize=8192)
def _family_with(letter: str) -> str | None:
    """An installed font that has the letter."""
    for entry in fontManager.ttflist:
        if entry.style == "normal" and not entry.name.startswith("Last Resort"):
            try:
                if ord(letter) in _charmap(entry.fname):
                    return entry.name
            except (OSError, RuntimeError):  # a font file that went away, or that FreeType cannot read
                continue
    return None


@lru_cache(maxsize=16384)
def _extent(text: str, size: float, style: tuple[tuple[str, Any], ...], chosen: tuple[str, ...]) -> tuple[float, float]:
    arguments = _plain(text, size, chosen, dict(style))
    drawn = Text(0, 0, arguments.pop("s"), **arguments)
    scratch = Figure(dpi=FINE)
    scratch.add_artist(drawn)
    box = drawn.get_window_extent()
    return box.width / FINE, box.height / FINE
