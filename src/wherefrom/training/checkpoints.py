"""Opening checkpoints: a shipped model by name, anything else as transformers finds it, or a clear error."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import transformers

from wherefrom import zoo
from wherefrom.errors import UnknownName, UnsupportedModel, warn
from wherefrom.model.loading import Request, placed, quiet, refuse_unfinished, refused, some, task_in


class Kind(NamedTuple):
    """What a command can be asked to open: the class that does, what it is called, and one that ships."""

    auto: Any
    called: str
    shipped: str


MASKED_LM = Kind(transformers.AutoModelForMaskedLM, "masked language model", "wherefrom/mlm")
CAUSAL_LM = Kind(transformers.AutoModelForCausalLM, "causal language model", "wherefrom/lm")
CLASSIFIER = Kind(transformers.AutoModelForSequenceClassification, "classifier of texts", "wherefrom/sentiment")
OF_PICTURES = Kind(transformers.AutoModelForImageClassification, "classifier of pictures", "wherefrom/picture")
ANSWERER = Kind(
    transformers.AutoModelForQuestionAnswering, "model that answers questions", "a folder of `wherefrom train qa`"
)
TRANSLATOR = Kind(transformers.AutoModelForSeq2SeqLM, "translator", "wherefrom/translate")


def locate(name: str) -> str:
    """The folder of a shipped model (`wherefrom/mlm`), or the name as it is: a folder or a hub id."""
    return str(zoo.path(name)) if name.startswith("wherefrom/") else name


def configuration(name: str) -> Any:
    """Of a model, which is there: transformers would say at length that it is not."""
    asked = Request(name, None, None, ())
    refuse_unfinished(name, asked.source)
    try:
        return transformers.AutoConfig.from_pretrained(asked.source, **asked.cached_only)
    except (OSError, ValueError, KeyError) as error:
        raise refused(asked, error) from error


def task_of(name: str) -> str:
    """What a model is for, by its configuration."""
    return task_in(configuration(name))


def tokenizer(name: str) -> Any:
    """A model's, or one that was saved alone."""
    asked = Request(name, None, None, ())
    refuse_unfinished(name, asked.source)
    try:
        found = transformers.AutoTokenizer.from_pretrained(asked.source, **asked.cached_only)
    except (OSError, ValueError, KeyError) as error:
        if asked.found:
            raise UnknownName(f"cannot open the tokenizer '{name}': there is none ({zoo.expected()})") from error
        raise refused(asked, error, "tokenizer") from error
    if len(found) <= len(found.all_special_ids):  # transformers makes one up that knows no word
        raise UnknownName(f"cannot open the tokenizer '{name}': it has no vocabulary ({zoo.expected()})")
    return found


def network(name: str, kind: Kind, **options: Any) -> Any:
    """A model of this kind in float32, all of whose weights are the checkpoint's."""
    _check_kind(name, kind)
    with quiet():
        found, info = kind.auto.from_pretrained(locate(name), dtype=torch.float32, output_loading_info=True, **options)
    if missing := sorted(info["missing_keys"]):
        raise UnsupportedModel(
            f"'{name}' is no {kind.called}: its checkpoint has no weights for {some(missing)}, which would be random; "
            f"expected one, e.g. {kind.shipped}"
        )
    return found


def measured(name: str, kind: Kind, device: str) -> Any:
    """The same, on a device and ready to be measured."""
    return placed(network(name, kind), device).eval()


def with_new_head(name: str, kind: Kind, **options: Any) -> Any:
    """The same, whose head may be drawn anew, and what pools for it; of anything else that is, a warning."""
    _check_kind(name, kind)
    with quiet():
        found, info = kind.auto.from_pretrained(locate(name), dtype=torch.float32, output_loading_info=True, **options)
    body = f"{found.base_model_prefix}."
    if missing := sorted(key for key in info["missing_keys"] if key.startswith(body) and "pooler" not in key):
        warn(f"'{name}' has no weights for {some(missing)}, which are drawn at random; is its checkpoint whole?")
    return found


def _check_kind(name: str, kind: Kind) -> None:
    config = configuration(name)
    if type(config) not in kind.auto._model_mapping:
        raise UnsupportedModel(
            f"'{name}' is no {kind.called}: a model of the type {config.model_type} cannot be one; expected e.g. "
            f"{kind.shipped}"
        )
