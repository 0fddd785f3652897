"""Several methods on one input, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.display import view
from wherefrom.errors import DamagedFile, InvalidInput, InvalidOption
from wherefrom.files import write
from wherefrom.result import tabular
from wherefrom.result.explanation import Explanation
from wherefrom.result.serialise import PICTURES, not_a, stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FORMAT = "wherefrom.comparison"
READ = (FORMAT, "whence.comparison")  # what the library was called when the first files were written


@dataclass(frozen=True, eq=False)
class Comparison(Mapping[str, Explanation]):
    """Explanations of one input by the name that each method was asked for: `comparison["rollout"]`.

    Or by names of your own, `Comparison({"before": one, "after": other})`: where another model or another text was
    explained, it is shown under a heading of its own.
    """

    explanations: dict[str, Explanation]
    failed: dict[str, str] = field(default_factory=dict)  # why a method that was asked for is not among them

    def __post_init__(self) -> None:
        named = isinstance(self.explanations, Mapping)
        if not named or not all(isinstance(each, Explanation) for each in self.explanations.values()):
            raise InvalidInput("a comparison is of explanations by name: {'one': …, 'other': …}, each from `explain`")

    def __getitem__(self, name: str) -> Explanation:
        if name not in self.explanations:
            why = f" (it failed: {self.failed[name]})" if name in self.failed else ""
            raise KeyError(f"no {name!r} among these{why}; there are {', '.join(self.explanations) or 'none'}")
        return self.explanations[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.explanations)

    def __len__(self) -> int:
        return len(self.explanations)

    def __repr__(self) -> str:
        failed = f"; failed: {', '.join(self.failed)}" if self.failed else ""
        return f"<Comparison of {', '.join(self) or 'nothing'}{failed}>"

    def words(self, how: str | None = None, *, rows: str | None = None) -> Comparison:
        """Every explanation over words instead of pieces, joined as `Explanation.words` does."""
        return Comparison({name: each.words(how, rows=rows) for name, each in self.explanations.items()}, self.failed)

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": 1,
            "explanations": {name: each.to_dict() for name, each in self.explanations.items()},
            **({"failed": self.failed} if self.failed else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """The inverse of `to_dict`."""
        if not isinstance(data, Mapping) or data.get("format") not in READ:
            raise not_a("comparison", data)
        if data.get("version") != 1:
            raise DamagedFile(f"this comparison has version {data.get('version')!r}; this wherefrom reads version 1")
        if not isinstance(data.get("explanations"), Mapping):
            raise DamagedFile("this comparison is damaged: it holds no explanations")
        failed = data.get("failed", {})
        if not isinstance(failed, Mapping):
            raise DamagedFile("this comparison is damaged: `failed` is not a dictionary by name")
        return cls(
            {name: Explanation.from_dict(each) for name, each in data["explanations"].items()},
            {str(name): str(detail) for name, detail in failed.items()},
        )

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame (the extra `pandas`) with a row per token and explanation: `name` says which."""
        return tabular.dataframe(((0, each, name) for name, each in self.items()), named=True)

    def save(self, path: str | Path, kind: str | None = None, **options: object) -> Path:
        """Write to a .json or .html file, as a picture (.png, .svg, .pdf) of a kind that `plot` knows, or as a table
        (.csv, .parquet, .jsonl)."""
        path = Path(path)
        if path.suffix in tabular.ENDINGS:
            return tabular.save(((0, each, name) for name, each in self.items()), path, named=True)
        if path.suffix in PICTURES:
            return Path(view("picture-file")(self.plot(kind, **options), path))
        if path.suffix == ".json":
            return write(path, json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False))
        if path.suffix == ".html":
            return write(path, self.to_html())
        raise InvalidOption(
            f"cannot save to '{path.name}'; expected a name ending in .json, .html, "
            f"{', '.join((*PICTURES, *tabular.ENDINGS))}"
        )

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Read what `save` wrote as .json."""
        return cls.from_dict(stored(Path(path), "comparison"))

    def show(self, *, layers: bool = False, pieces: bool = False) -> None:
        """Coloured words (or pieces) in the terminal, one line each."""
        shown = list(self.values())
        view("terminal")(shown, names=list(self), layers=layers, pieces=pieces, failed=self.failed)

    def plot(self, kind: str | None = None, **options: object) -> Figure:
        """A matplotlib figure (the extra `plot`) of a kind as in `Explanation.plot`, all methods in one.

        width is "column", "page" or inches, dark=True for a dark background; wherefrom.view.plot has each kind's own.
        """
        figure: Figure = view("picture")(self, kind, **options)
        return figure

    def to_html(self) -> str:
        """The viewer with all of them side by side: one HTML document that needs nothing beside it."""
        return str(view("html-page")(self.explanations, failed=self.failed))

    def _repr_html_(self) -> str:
        return str(view("html-cell")(self.explanations, failed=self.failed))
