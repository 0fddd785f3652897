"""From the arguments of `reproduce` to one `RecipeCall` for each recipe.

    reproduce("globenc/table1", model="sst2=A,mnli=B")                    a model for each dataset
    reproduce("abnar2020", model="linzen_lgd=A,sst2=B,figure4=C")         or for one recipe of a paper
    reproduce("abnar2020/table2(norm=sum)")                               an option of the recipe

A whole paper is made with what it is given: `fit` leaves out the options, texts and datasets that concern other recipes
of the paper, and raises the reason where nothing is left for a recipe to be made from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from wherefrom import spec
from wherefrom.data import drawn
from wherefrom.errors import InvalidOption
from wherefrom.papers import samples
from wherefrom.papers.recipe import Recipe, RecipeCall, Text
from wherefrom.typecheck import kind_of

TEXTS_DRAWN = 3  # of a dataset, by a recipe about single texts


@dataclass(frozen=True)
class ReproduceRequest:
    """The arguments of one `reproduce`, for however many recipes."""

    models: tuple[tuple[str, str], ...] = ()  # (dataset, recipe or "" for every one; model)
    data: tuple[str, ...] = ()
    split: str | None = None
    columns: Mapping[str, str] | None = None
    texts: tuple[Text, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    train_limit: int | None = None
    seed: int = 0
    device: str | None = None
    out: Path | None = None
    folder: Path | None = None
    names: Mapping[Any, str] | None = None

    def __post_init__(self) -> None:
        for name in ("limit", "train_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidOption(f"{name} is {value}; expected a whole number, at least 1")


def parse_models(model: str | Mapping[str, str] | None, keys: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The models by dataset or recipe: `"A"`, `"sst2=A,mnli=B"`, or a mapping. Keys that no recipe has are refused."""
    if model is None:
        return ()
    if isinstance(model, Mapping):
        pairs = [(str(key), str(value)) for key, value in model.items()]
    elif isinstance(model, str | os.PathLike):
        text = os.fspath(model)
        parts = [part.partition("=") for part in text.split(",")]
        if not all(equals and name.strip() for name, equals, _ in parts) or os.path.exists(text):
            return (("", text),)
        pairs = [(name.strip(), value.strip()) for name, _, value in parts]
    else:
        raise InvalidOption(
            f"model is {kind_of(model)}; expected a shipped model, a Hub id or a folder, because a recipe's runs are "
            f"kept by the model's name: save it first (model.save_pretrained, tokenizer.save_pretrained)"
        )
    if unknown := [key for key, _ in pairs if key not in keys]:
        raise InvalidOption(
            f"--model names a model for {', '.join(map(repr, unknown))}, which is no dataset or recipe here; expected "
            f"{', '.join(keys)}"
        )
    return tuple(pairs)


def model_keys(recipes: Sequence[Recipe], data: Sequence[str]) -> list[str]:
    """The names that `--model NAME=MODEL` may give a model to: datasets, and recipes within their paper."""
    datasets = [samples.dataset_of(name) for name in data]
    known = [name for each in recipes for name in (*each.data, *each.columns, each.model_of) if name]
    return list(dict.fromkeys([*datasets, *known, *(each.short for each in recipes)]))


def check_options(recipe: Recipe, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of a recipe: the chosen value, or the default."""
    checked = spec.checked_options(recipe.name, chosen, recipe.options, _option_types(recipe))
    for name, value in checked.items():
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise InvalidOption(f"{recipe.name}: {name} is {value}; expected a whole number, at least 1")
    defaults = {name: value[0] if isinstance(value, tuple) else value for name, value in recipe.options.items()}
    return {**defaults, **checked}


def _option_types(recipe: Recipe) -> dict[str, Any]:
    def type_of(value: Any) -> Any:
        if isinstance(value, tuple):
            return Literal[value]
        if isinstance(value, bool | str):
            return type(value)
        return int | None

    return {name: type_of(value) for name, value in recipe.options.items()}


def resolve(recipe: Recipe, request: ReproduceRequest | None = None) -> RecipeCall:
    """The call of one recipe: the request's arguments, and the recipe's defaults for the rest."""
    request = request or ReproduceRequest()
    if request.data and not recipe.data and not recipe.texts:
        raise InvalidOption(f"{recipe.name} reads no texts and takes no --data")
    if request.data and request.texts and not recipe.data:
        raise InvalidOption(f"{recipe.name} shows single texts; give it --text or --data, not both")
    if request.texts and not recipe.texts:
        raise InvalidOption(f"{recipe.name} measures a dataset and takes no --text; give it --data")
    if (request.split or request.columns) and not recipe.data and not request.data:
        raise InvalidOption(f"{recipe.name} reads no dataset and takes no --split or --column")
    chosen = {key: model for key, model in request.models if key}
    by_dataset = [name for name in dict.fromkeys((*recipe.columns, *recipe.data)) if name in chosen]
    if not by_dataset or request.data or recipe.short in chosen:
        names = request.data or tuple(each for each in recipe.data if samples.at_hand(each, request.folder))
    else:
        names = tuple(name for name in by_dataset if samples.at_hand(name, request.folder))
        if (absent := [name for name in by_dataset if name not in names]) and not recipe.texts:
            raise InvalidOption(
                f"{recipe.name}: no data for {', '.join(absent)} on this machine; set WHEREFROM_DATA or --folder, or "
                f"name the files with --data"
            )
    names = names or (tuple(recipe.spare.split(",")) if recipe.spare else ())
    models = {key: model for key, model in chosen.items() if key in {samples.dataset_of(name) for name in names}}
    shared = chosen.get(recipe.short) or chosen.get(recipe.model_of)
    if chosen and not shared and not models:
        raise InvalidOption(f"{recipe.name}: no model named for it; add {recipe.short}=MODEL to --model")
    if models and (missing := [name for name in names if samples.dataset_of(name) not in models]):
        raise InvalidOption(
            f"{recipe.name}: no model named for {', '.join(missing)}; add {missing[0]}=MODEL to --model"
        )
    everywhere = dict(request.models).get("")
    model = shared or next(iter(models.values()), None) or everywhere or recipe.model
    return RecipeCall(
        recipe,
        model,
        names,
        request.limit or recipe.limit,
        seed=request.seed,
        device=request.device,
        out=request.out,
        folder=request.folder,
        names=request.names,
        models=models,
        texts=request.texts or (draw_texts(request) if request.data and not recipe.data else recipe.texts),
        options=check_options(recipe, dict(request.options)),
        split=request.split,
        columns=request.columns,
        train_limit=request.train_limit,
    )


def draw_texts(request: ReproduceRequest) -> tuple[Text, ...]:
    """Texts of the named datasets for a recipe about single texts: `limit` of each, drawn by the seed."""
    datasets = (samples.read(name, request.folder, request.columns, request.split) for name in request.data)
    limit = request.limit or TEXTS_DRAWN
    return tuple(example.text for data in datasets for example in drawn(data, limit, request.seed))


def fit(request: ReproduceRequest, recipe: Recipe, paper: Sequence[Recipe]) -> ReproduceRequest:
    """The part of a request for a whole paper that concerns one of its recipes."""
    options = {name: value for name, value in dict(request.options).items() if name in recipe.options}
    if request.texts and not recipe.texts and not request.data:
        raise InvalidOption(f"{recipe.name} measures a dataset; --text has nothing to say to it")
    texts = request.texts if recipe.texts else ()
    if not recipe.data:
        return replace(request, options=options, texts=texts, data=(), split=None, columns=None)
    others = {name for each in paper for name in (*each.data, *each.columns)} - {*recipe.data, *recipe.columns}
    data = tuple(name for name in request.data if samples.dataset_of(name) not in others)
    if request.data and not data:
        raise InvalidOption(f"{recipe.name} takes {', '.join(recipe.data)}; --data has none of them")
    return replace(request, options=options, texts=texts, data=data)


def refuse_unknown_options(recipes: Sequence[Recipe], options: Mapping[str, Any]) -> None:
    """Refuse an option that no recipe of a paper has."""
    known = list(dict.fromkeys(name for each in recipes for name in each.options))
    for name in options:
        if name not in known:
            raise InvalidOption(
                f"no recipe of {recipes[0].paper} has an option '{name}'; their options: {', '.join(known) or 'none'}"
            )
