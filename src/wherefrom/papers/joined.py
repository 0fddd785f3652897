"""Tables of several calls: columns that an earlier call wrote into the same folder stay beside those of the next.

The numbers of a recipe that joins are kept in `<name>.json` beside its table, example by example, so that a claim over
the joined table is tested as if one call had measured all of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wherefrom.errors import DamagedFile
from wherefrom.files import write
from wherefrom.metric.correlation import Summary
from wherefrom.papers.recipe import Measured, Place, Recipe, Table

FIELDS = ("mean", "deviation", "interval", "count", "undefined")


def join_table(recipe: Recipe, table: Table, path: Path) -> Table:
    """The table with the columns of earlier calls from `path`, which is written anew."""
    if path.is_file():
        table = _join(recipe, _load(path), table)
    write(path, json.dumps(_to_json(table), ensure_ascii=False, allow_nan=False) + "\n")
    return table


def _join(recipe: Recipe, before: Table, now: Table) -> Table:
    """Both tables in one; a column of both is the later one's."""
    earlier = [column for column in before.columns if column not in now.columns]
    if not earlier:
        return now
    order = list(dict.fromkeys(column for _, column in recipe.reported))
    columns = sorted(
        [*earlier, *now.columns], key=lambda column: order.index(column) if column in order else len(order)
    )
    return replace(
        now,
        rows=list(dict.fromkeys([*now.rows, *before.rows])),
        columns=columns,
        ours={place: cell for place, cell in before.ours.items() if place[1] in earlier} | dict(now.ours),
        used={column: line for column, line in (_by_column(before) | _by_column(now)).items() if column in columns},
        notes=list(dict.fromkeys([*now.notes, *before.notes])),
    )


def _by_column(table: Table) -> dict[str, str]:
    """The source of each column."""
    if isinstance(table.used, Mapping):
        return dict(table.used)
    return dict.fromkeys(table.columns, "; ".join(table.used))


def _to_json(table: Table) -> dict[str, Any]:
    cells = [
        {"row": row, "column": column, **_numbers(cell), "values": _values(cell)}
        for (row, column), cell in table.ours.items()
    ]
    return {
        "rows": list(table.rows),
        "columns": list(table.columns),
        "of": table.of,
        "used": _by_column(table),
        "notes": list(table.notes),
        "cells": cells,
    }


def _numbers(cell: Summary) -> dict[str, Any]:
    return {name: _nan_to_none(getattr(cell, name)) for name in FIELDS}


def _values(cell: Summary) -> dict[str, float | None] | None:
    if not isinstance(cell, Measured):
        return None
    return {example: _nan_to_none(value) for example, value in cell.values().items()}


def _nan_to_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _none_to_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _load(path: Path) -> Table:
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        cells = dict(map(_cell, saved["cells"]))
        return Table(saved["rows"], saved["columns"], cells, saved["of"], saved["used"], saved["notes"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(
            f"{path} is not a table that `wherefrom reproduce` wrote ({error!r}); choose another --out or remove it"
        ) from error


def _cell(saved: Mapping[str, Any]) -> tuple[Place, Summary]:
    mean, deviation, interval = (_none_to_nan(saved[name]) for name in FIELDS[:3])
    summary = Summary(mean, deviation, interval, saved["count"], saved["undefined"])
    place = saved["row"], saved["column"]
    if saved["values"] is None:
        return place, summary
    values = {example: _none_to_nan(value) for example, value in saved["values"].items()}
    return place, Measured.of(summary, lambda: values)
