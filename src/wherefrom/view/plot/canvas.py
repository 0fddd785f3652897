"""A figure of a paper's width, made without pyplot: no global state, so that threads may draw side by side.

Colours, fonts and sizes are set on every element; the user's rcParams are read for the font and never changed.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.files import write
from wherefrom.result.serialise import PICTURES
from wherefrom.view.colour import DARK, WHITE, Colour, hexadecimal
from wherefrom.view.plot.lettering import plain

WIDTHS = {"column": 3.3, "page": 6.9}  # inches: one column of a two-column paper, and both
SIZE = 7.0  # points of ordinary text; captions of the field's papers have 9 or 10
SMALL = 6.0
TINY = 4.5  # below this nobody reads
GAP = 0.06  # inches between things that belong together

# Fonts go into the file: outlines of whole fonts in PDF (Type 3 is refused by some publishers), paths in SVG. The salt
# gives the same picture the same file.
FILES = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "wherefrom"}
_writing = threading.RLock()


@dataclass(frozen=True)
class Theme:
    """What a picture stands on and is written with."""

    ground: Colour
    ink: str
    faint: str  # lines that guide the eye, secondary text
    dark: bool = False


DAY = Theme(WHITE, "#1a1a1a", "#8a8a8a")
NIGHT = Theme(DARK, "#ececec", "#8d929b", dark=True)


class Picture(Figure):
    """A matplotlib figure that shows itself in a notebook without pyplot and carries its fonts into files."""

    def __init__(self, width: float, height: float, theme: Theme) -> None:
        super().__init__(figsize=(width, height), dpi=150, facecolor=hexadecimal(theme.ground))
        self.set_layout_engine("none")  # whatever the user's settings say
        FigureCanvasAgg(self)
        self.theme = theme

    @property
    def ground(self) -> str:
        return hexadecimal(self.theme.ground)

    def savefig(self, fname: Any, **options: Any) -> None:
        """As Figure.savefig, with fonts embedded, at the figure's own size and on its own ground."""
        given = {"dpi": 300, "facecolor": self.get_facecolor(), "bbox_inches": self.bbox_inches, **options}
        with _embedding_fonts():
            super().savefig(fname, **given)

    def _repr_png_(self) -> bytes:
        return self.file("png", dpi=120)

    def file(self, form: str, **options: Any) -> bytes:
        """The picture as the bytes of a png, svg or pdf file; the same picture gives the same bytes."""
        undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
        buffer = io.BytesIO()
        self.savefig(buffer, format=form, metadata=undated, **options)
        return buffer.getvalue()

    def panel(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes at a place given in inches from the upper left corner."""
        w, h = self.get_size_inches()
        axes = self.add_axes((left / w, 1 - (top + height) / h, width / w, height / h))
        axes.set_facecolor("none")
        for spine in axes.spines.values():
            spine.set_edgecolor(self.theme.faint)
            spine.set_linewidth(0.5)
        return axes

    def write(self, x: float, y: float, text: str, size: float = SIZE, **style: Any) -> Text:
        """Text at a place given in inches from the upper left corner."""
        w, h = self.get_size_inches()
        style.setdefault("color", self.theme.ink)
        return self.text(x / w, 1 - y / h, **plain(text, size, **style))


def inches(width: str | float | None, usual: str) -> float:
    """A width by its name or in inches."""
    width = usual if width is None else width
    if isinstance(width, str):
        if width not in WIDTHS:
            raise InvalidOption(f"unknown width {width!r}; expected {', '.join(WIDTHS)}, or a number of inches")
        return WIDTHS[width]
    if not 1.0 <= width <= 100.0:
        raise InvalidOption(f"a figure cannot be {width} inches wide; expected 1 to 100")
    return float(width)


def theme(dark: bool) -> Theme:
    return NIGHT if dark else DAY


def save(picture: Figure, path: str | Path) -> Path:
    """Write a .png, .svg or .pdf file, by the ending of its name."""
    path = Path(path)
    if path.suffix not in PICTURES:
        raise InvalidOption(f"cannot save a picture to '{path.name}'; expected a name ending in {', '.join(PICTURES)}")
    if not isinstance(picture, Picture):
        raise InvalidInput("expected a figure made by wherefrom; others save themselves with savefig")
    return write(path, picture.file(path.suffix[1:]))


@contextmanager
def _embedding_fonts() -> Iterator[None]:
    """matplotlib asks its global settings how to embed fonts: they are set for the length of one writing."""
    with _writing:
        settings: Any = mpl.rcParams
        before = {name: settings[name] for name in FILES}
        try:
            settings.update(FILES)
            yield
        finally:
            settings.update(before)
