"""A recipe's result for people: our numbers beside the paper's, in the terminal, as csv, Markdown and pictures."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.errors import RunConflict, UnknownName
from wherefrom.files import write
from wherefrom.metric.correlation import Summary
from wherefrom.papers.claims import Verdict
from wherefrom.papers.joined import join_table
from wherefrom.papers.recipe import Place, Recipe, Reported, Table

if TYPE_CHECKING:
    from rich.console import Console

    from wherefrom.view.plot import Picture

HEADING = ("row", "column", "mean", "deviation", "interval", "n", "undefined", "paper", "paper deviation")
ENDINGS = (".svg", ".png")


def file_name(recipe: Recipe, options: Mapping[str, Any]) -> str:
    """The name of a recipe's files without their ending: options that differ from the default are in it.

    >>> file_name(recipe, {"norm": "sum"})
    'abnar2020/table2-norm=sum'
    """
    defaults = {name: value[0] if isinstance(value, tuple) else value for name, value in recipe.options.items()}
    changed = [f"-{name}={value}" for name, value in options.items() if value != defaults.get(name)]
    return recipe.name + "".join(changed).replace("/", "_").replace(" ", "_")


def refuse_foreign(recipe: Recipe, out: Path, options: Mapping[str, Any]) -> None:
    """Refuse to replace a file of somebody's own by a table: ours begin with our heading, or with the recipe's name."""
    for ending, heading in ((".csv", ",".join(HEADING)), (".md", f"### {recipe.name}")):
        path = out / f"{file_name(recipe, options)}{ending}"
        if path.is_file() and not path.read_bytes().startswith(heading.encode()):
            raise RunConflict(f"'{path}' is not of {recipe.name}, which would replace it; choose another folder")


@dataclass(frozen=True, eq=False)
class Result:
    """A recipe with its table, and whether the paper's claims hold in it."""

    recipe: Recipe
    table: Table
    verdicts: list[Verdict]
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Recipe, table: Table, options: Mapping[str, Any] | None = None) -> Result:
        verdicts = [verdict for claim in recipe.claims for verdict in claim.verdicts(table)]
        return cls(recipe, table, verdicts, options or {})

    def joined(self, out: Path) -> Result:
        """The result with the columns that earlier calls wrote into this folder, where the recipe joins them."""
        if not self.recipe.joins:
            return self
        path = out / f"{file_name(self.recipe, self.options)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        return Result.of(self.recipe, join_table(self.recipe, self.table, path), self.options)

    @property
    def reported(self) -> Mapping[Place, Reported]:
        """The paper's numbers, unless all of ours are of models that it does not report."""
        shared = {column for _, column in self.recipe.reported} & set(self.table.columns)
        return self.recipe.reported if shared or self.table.comparable else {}

    @property
    def columns(self) -> list[str]:
        """Our columns, and those that only the paper has."""
        told = dict.fromkeys(column for _, column in self.reported)
        return [*self.table.columns, *(column for column in told if column not in self.table.columns)]

    def cells(self) -> Iterator[tuple[str, str, Summary | None, Reported | None]]:
        """Every cell in which either has a number."""
        for row in self.table.rows:
            for column in self.columns:
                ours, theirs = self.table.ours.get((row, column)), self.reported.get((row, column))
                if ours is not None or theirs is not None:
                    yield row, column, ours, theirs

    def csv(self) -> str:
        """One line a cell, every number in full."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(HEADING)
        for row, column, ours, theirs in self.cells():
            numbers = (
                (None,) * 5 if ours is None else (ours.mean, ours.deviation, ours.interval, ours.count, ours.undefined)
            )
            writer.writerow([row, column, *map(_exact, numbers), *map(_exact, theirs or (None, None))])
        return text.getvalue()

    def grid(self) -> list[list[str]]:
        """The heading and a line for each row; in a cell ours, and the paper's in brackets."""
        lines = [["", *self.columns]]
        for row in self.table.rows:
            cells = [
                _beside(self.table.ours.get((row, column)), self.reported.get((row, column))) for column in self.columns
            ]
            lines.append([row, *cells])
        return lines

    def about(self) -> list[str]:
        """What stands above the table."""
        table = self.table
        none = (
            "the paper gives none in writing" if self.recipe.at_hand else "the paper's printed numbers are not at hand"
        )
        none = "the paper's numbers are of other models" if self.recipe.reported else none
        options = ", ".join(f"{name}={value}" for name, value in self.options.items() if value != "")
        beside = "; in brackets the paper's" if self.reported else f"; {none}"
        return [
            f"{self.recipe.about}",
            f"Ours: {'; '.join(table.sources)}. {table.of}{beside}.",
            *([f"Options: {options}."] if options else []),
            f"Paper: {self.recipe.samples}.",
            *table.notes,
        ]

    def _repr_html_(self) -> str:
        from wherefrom.view.notebook import paragraphs, table

        heading, *lines = self.grid()
        claims = [f"{each.says} {str(each).capitalize()}." for each in self.verdicts]
        return paragraphs(self.about(), title=self.recipe.name) + table(heading, lines) + paragraphs(claims)

    def markdown(self) -> str:
        """The table with what stands above and below it."""
        heading, *lines = self.grid()
        rows = [heading, ["---"] * len(heading), *lines]
        table = "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)
        claims = "".join(f"- {each.says} **{str(each).capitalize()}.**\n" for each in self.verdicts)
        return (
            f"### {self.recipe.name}\n\n"
            + "\n\n".join(self.about())
            + f"\n\n{table}"
            + (f"\n{claims}" if claims else "")
        )

    def write(self, out: Path) -> list[Path]:
        """csv, md and pictures, in a folder for the paper."""
        paper, _, name = file_name(self.recipe, self.options).partition("/")
        folder = out / paper
        folder.mkdir(parents=True, exist_ok=True)
        files = [
            write(folder / f"{name}.csv", self.csv()),
            write(folder / f"{name}.md", self.markdown()),
        ]
        from wherefrom.view.plot import save

        for added in self.table.pictures or [""]:
            picture = self.plot(added)
            files += [save(picture, folder / f"{name}{added}{ending}") for ending in ENDINGS]
        return files

    def plot(self, which: str | None = None) -> Picture:
        """The figure, the first if there are several; `which` names one by what its file adds to the recipe's name."""
        from wherefrom.view.plot import grid

        table = self.table
        if not table.pictures:
            return grid(table.matrix(), list(table.rows), list(table.columns))
        if which is None:
            which = next(iter(table.pictures))
        if which not in table.pictures:
            raise UnknownName(f"{self.recipe.name} has no picture '{which}'; expected {', '.join(table.pictures)}")
        return table.pictures[which](table)

    def show(self, console: Console | None = None) -> None:
        """The same in the terminal."""
        from rich.console import Console
        from rich.table import Table as Lines
        from rich.text import Text

        console = console or Console()
        console.print(Text(self.recipe.name, style="bold"))
        for line in self.about():
            console.print(Text(line))
        columns = list(zip(*self.grid(), strict=True))
        for block in _blocks(columns, console.width):
            lines = Lines(box=None, padding=(0, 2, 0, 0))
            for column in block:
                lines.add_column(column[0], no_wrap=True)
            for row in zip(*(column[1:] for column in block), strict=True):
                lines.add_row(*(Text(_broken(cell)) for cell in row))
            console.print(lines)
        for each in self.verdicts:
            console.print(Text.assemble((f"{each}: ", "bold"), each.says))

    def __repr__(self) -> str:
        return f"<{self.recipe.name}: {'; '.join(self.table.sources)}>"


def _broken(cell: str) -> str:
    """The paper's number under ours."""
    return cell.replace(" (", "\n(", 1) if cell.endswith(")") else cell


def _blocks(columns: list[tuple[str, ...]], width: int) -> Iterator[list[tuple[str, ...]]]:
    """The columns in as many blocks as the width asks for, each with the names of the rows."""
    sizes = [2 + max(len(line) for cell in column for line in _broken(cell).split("\n")) for column in columns]
    block: list[int] = []
    for place in range(1, len(columns)):
        if block and sizes[0] + sum(sizes[i] for i in (*block, place)) > width:
            yield [columns[0], *(columns[i] for i in block)]
            block = []
        block.append(place)
    yield [columns[0], *(columns[i] for i in block)]


def _exact(value: float | int | None) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else repr(value)


def _beside(ours: Summary | None, theirs: Reported | None) -> str:
    here = "–" if ours is None or math.isnan(ours.mean) else _mean(ours.mean, ours.deviation)
    return here if theirs is None else f"{here} ({_mean(theirs.mean, theirs.deviation)})"


def _mean(mean: float, deviation: float | None) -> str:
    digits = 2 if deviation is not None or round(mean, 2) == mean else 3
    spread = "" if deviation is None or math.isnan(deviation) else f" ± {deviation:.2f}"
    return f"{mean:.{digits}f}{spread}"
