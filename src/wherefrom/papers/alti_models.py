"""The models of ALTI's tables: several separated by commas, named by their family as the paper names its columns."""

from __future__ import annotations

from wherefrom.errors import UnsupportedModel
from wherefrom.model import open_model
from wherefrom.papers.recipe import RecipeCall, called

FAMILIES = {"bert": "BERT", "distilbert": "DistilBERT", "roberta": "RoBERTa"}
REPOSITORY = "those in brackets are from the authors' repository (github.com/mt-upc/transformer-contributions"
TASKS = {"classification": "a classifier", "masked-lm": "a masked language model"}


def split_models(models: str) -> list[str]:
    """The names of models separated by commas."""
    return [name for part in models.split(",") if (name := part.strip())]


def name_models(models: list[str], device: str | None = None) -> dict[str, str]:
    """Models by the paper's name of their family; a second one of a family has its own name too.

    >>> name_models(["wherefrom/sentiment", "wherefrom/mlm"])
    {'BERT': 'wherefrom/sentiment', 'BERT (wherefrom/mlm)': 'wherefrom/mlm'}
    """
    named: dict[str, str] = {}
    for model in models:
        family = FAMILIES.get(open_model(model, device=device).config.model_type, called(model))
        named[f"{family} ({called(model)})" if family in named else family] = model
    return named


def choose_models(call: RecipeCall, task: str = "") -> dict[str, str]:
    """The models of a call that do a task, by family; all of them without a task."""
    models = split_models(call.model)
    fitting = [name for name in models if not task or open_model(name, device=call.device).task == task]
    if not fitting:
        raise UnsupportedModel(f"{call.recipe.name} needs {TASKS[task]}; {call.model} is none, so give another --model")
    return name_models(fitting, call.device)
