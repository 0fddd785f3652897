"""The papers' tables and figures by name: `wherefrom.reproduce("abnar2020/table1")`.

One module per paper; each table and figure is a recipe (wherefrom/papers/recipe.py) that runs on the shipped models,
and on the grammar or sentences of our own where there is no data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wherefrom.display import Listed
from wherefrom.papers import abnar2020, alti, alti_logit, attcat, attn_lrp, decompx, globenc, value_zeroing, yin_neubig  # noqa: F401
from wherefrom.papers.recipe import Recipe, all_recipes, lookup, resolve
from wherefrom.papers.report import Result, refuse_foreign

__all__ = ["Recipe", "Result", "lookup", "recipes", "reproduce"]


def recipes() -> list[Recipe]:
    """Every table and figure that can be reproduced, paper by paper."""
    return all_recipes()


def reproduce(
    name: str,
    *,
    model: str | None = None,
    data: str | None = None,
    limit: int | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    names: Mapping[Any, str] | None = None,
) -> Result | list[Result]:
    """Run a recipe: a `Result` with our numbers beside the paper's. The name of a paper gives a list, all of them.

    model: a shipped model, a hub id or a folder, in place of the recipe's own.
    names: what the data calls a class of that model, where it has other labels: {0: "negative", 1: "positive"}.
    data: a dataset (`wherefrom.data.read`), or several by commas where the paper's table has several.
    limit: how many examples, drawn by `seed`. folder: where datasets lie; or set WHEREFROM_DATA.
    out: where csv, md and pictures are written, and runs are kept: asked again, nothing is computed twice.

    >>> wherefrom.reproduce("abnar2020/figure1")
    <abnar2020/figure1: wherefrom/agreement on “the key to the cabinets”, which it calls singular>
    """
    chosen = lookup(name)
    if out is not None:
        for each in chosen:
            refuse_foreign(each, Path(out))
    results = []
    for each in chosen:
        asked = resolve(
            each,
            model,
            data,
            limit,
            out=None if out is None else Path(out),
            device=device,
            seed=seed,
            folder=None if folder is None else Path(folder),
            names=None if names is None else dict(names),
        )
        result = Result.of(each, each.make(asked))
        if out is not None:
            result.write(Path(out))
        results.append(result)
    return results[0] if len(chosen) == 1 and chosen[0].name == name else Listed(results)
