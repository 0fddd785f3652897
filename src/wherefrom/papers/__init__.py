"""The papers' tables and figures by name: `wherefrom.reproduce("abnar2020/table1")`.

One module per paper; each table and figure is a recipe (wherefrom/papers/recipe.py) that runs on the shipped models,
and on the grammar or sentences of our own where there is no data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wherefrom import spec
from wherefrom.display import Listed
from wherefrom.errors import WherefromError
from wherefrom.papers import (  # noqa: F401
    abnar2020,
    abnar2020_figures,
    alti,
    alti_anisotropy,
    alti_examples,
    alti_figures,
    alti_logit,
    attcat,
    attcat_answers,
    attcat_texts,
    attn_lrp,
    decompx,
    globenc,
    globenc_figures,
    planted_facts,
    value_zeroing,
    value_zeroing_compression,
    value_zeroing_faithfulness,
    value_zeroing_supplement,
    yin_neubig,
)
from wherefrom.papers.recipe import Recipe, Text, all_recipes, lookup
from wherefrom.papers.report import Result, refuse_foreign
from wherefrom.papers.request import (
    ReproduceRequest,
    check_options,
    fit,
    model_keys,
    parse_models,
    refuse_unknown_options,
    resolve,
)

__all__ = ["Omission", "Recipe", "Result", "Results", "lookup", "recipes", "reproduce"]


class Omission(NamedTuple):
    """A table or figure of a paper that could not be made, and the reason."""

    recipe: Recipe
    error: WherefromError


class Results(Listed[Result]):
    """The tables and figures of a paper; `left_out` has those that could not be made."""

    def __init__(self, results: Sequence[Result], left_out: Sequence[Omission] = ()) -> None:
        super().__init__(results)
        self.left_out = list(left_out)


def recipes() -> list[Recipe]:
    """Every table and figure that can be reproduced, paper by paper."""
    return all_recipes()


def reproduce(
    name: str,
    *,
    model: str | Mapping[str, str] | None = None,
    data: str | None = None,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    texts: Text | Sequence[Text] | None = None,
    limit: int | None = None,
    train_limit: int | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    names: Mapping[Any, str] | None = None,
    on_result: Callable[[Result | Omission], None] | None = None,
    **options: str | int | bool | None,
) -> Result | Results:
    """Run a recipe: a `Result` with our numbers beside the paper's. The name of a paper gives `Results`, all of them.

    A paper is made as far as the models and data allow; `left_out` lists the rest with the reasons.

    Args:
        name: "abnar2020/table1"; a paper, "abnar2020"; either with options, "abnar2020/table2(norm=sum)".
        model: a shipped model, a Hub id or a folder in place of the recipe's own; or one for each dataset or recipe:
            "sst2=A,mnli=B,figure4=C", or a mapping.
        data: a dataset (`wherefrom.data.read`), or several separated by commas where the paper's table has several; a
            recipe about single texts takes `limit` of its texts (3).
        split: the split of the dataset.
        columns: the column of each part of an example: {"text": "review"}.
        texts: the texts of a recipe about single texts; a pair is a tuple of two.
        limit: the number of examples, drawn by `seed`.
        train_limit: the number of training examples, where a recipe trains a model.
        out: the folder for csv, md and pictures. Runs are kept there too, so that nothing is computed twice, and
            columns of several calls are joined where a recipe has a column for each model or dataset.
        device: the device of the model.
        seed: draws the examples.
        folder: the folder of datasets; or set WHEREFROM_DATA.
        names: the data's name of a class of the model, where labels differ: {0: "negative", 1: "positive"}.
        on_result: called with each result as soon as it is there.
        options: of the recipe, by name.

    >>> wherefrom.reproduce("abnar2020/figure1")
    <abnar2020/figure1: wherefrom/agreement on “the key to the cabinets”, which it calls singular>
    """
    title, spelled = spec.parse(name)
    chosen = lookup(title)
    datasets = tuple(part.strip() for part in data.split(",") if part.strip()) if data else ()
    request = ReproduceRequest(
        models=parse_models(model, model_keys(chosen, datasets)),
        data=datasets,
        split=split,
        columns=columns,
        texts=(texts,) if isinstance(texts, str) else tuple(texts or ()),
        options={**spelled, **options},
        limit=limit,
        train_limit=train_limit,
        seed=seed,
        device=device,
        out=None if out is None else Path(out),
        folder=None if folder is None else Path(folder),
        names=None if names is None else dict(names),
    )
    report = on_result or (lambda _: None)
    if len(chosen) == 1 and chosen[0].name == title:
        result = _make(chosen[0], request)
        report(result)
        return result
    return _make_paper(chosen, request, report)


def _make_paper(
    chosen: list[Recipe], request: ReproduceRequest, report: Callable[[Result | Omission], None]
) -> Results:
    """Every recipe of a paper that can be made."""
    refuse_unknown_options(chosen, request.options)
    if request.out is not None:
        for recipe in chosen:
            own = {name: value for name, value in request.options.items() if name in recipe.options}
            refuse_foreign(recipe, request.out, check_options(recipe, own))
    made: list[Result] = []
    left_out: list[Omission] = []
    for recipe in chosen:
        try:
            made.append(_make(recipe, fit(request, recipe, chosen)))
            report(made[-1])
        except WherefromError as error:
            left_out.append(Omission(recipe, error))
            report(left_out[-1])
    if not made:
        raise left_out[0].error
    return Results(made, left_out)


def _make(recipe: Recipe, request: ReproduceRequest) -> Result:
    call = resolve(recipe, request)
    if call.out is not None:
        refuse_foreign(recipe, call.out, call.options)
    result = Result.of(recipe, recipe.make(call), call.options)
    if call.out is not None:
        result = result.joined(call.out)
        result.write(call.out)
    return result
