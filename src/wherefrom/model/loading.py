"""Reading a checkpoint: a shipped model, a folder or a hub id becomes a model and its tokenizer, or a clear error.

The caller's process stays as it is: random state, default dtype, inference mode, progress bars and log level.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from huggingface_hub import constants, get_session, try_to_load_from_cache

from wherefrom import zoo
from wherefrom.errors import (
    DamagedFile,
    InvalidOption,
    RunConflict,
    UnknownName,
    UnsupportedModel,
    WherefromError,
    warn,
)
from wherefrom.model.undo import outside_inference_mode

# What a model is for: the auto class that loads it, and the ending of its class name.
TASKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "classification": (
        "AutoModelForSequenceClassification",
        ("ForSequenceClassification", "ForImageClassification", "ForImageClassificationWithTeacher"),
    ),
    "masked-lm": ("AutoModelForMaskedLM", ("ForMaskedLM",)),
    "token-classification": ("AutoModelForTokenClassification", ("ForTokenClassification",)),
    "question-answering": ("AutoModelForQuestionAnswering", ("ForQuestionAnswering", "ForQuestionAnsweringSimple")),
    "causal-lm": ("AutoModelForCausalLM", ("ForCausalLM", "LMHeadModel")),
    "seq2seq": ("AutoModelForSeq2SeqLM", ("ForConditionalGeneration", "MarianMTModel")),
    "encoder": ("AutoModel", ("Model",)),
}
LONGEST = 200  # letters of a name in an error: it may be a whole text
OWN_CODE = {"trust_remote_code": False}  # left open, transformers would ask at the terminal
DEPTH = {"num_hidden_layers", "n_layer", "n_layers"}  # options that leave layers of a checkpoint out
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
UNFINISHED = "checkpoints/run.json"  # what a training has in the model's folder until it comes to its end
DTYPES = ("float32", "float64", "bfloat16", "float16")


@dataclass(frozen=True)
class Request:
    """A model to be loaded."""

    name: str
    task: str | None
    device: str | None
    options: tuple[tuple[str, Any], ...]  # for from_pretrained

    @property
    def shipped(self) -> bool:
        return self.name.startswith("wherefrom/") and not os.path.exists(self.name)

    @property
    def source(self) -> str:
        return str(zoo.path(self.name)) if self.shipped else self.name

    @cached_property
    def cached_only(self) -> dict[str, bool]:
        """For from_pretrained: no way to the hub, where there is none. It would be tried for half a minute."""
        of_hub = HUB_NAME.fullmatch(self.source) and not os.path.exists(self.source)
        return {"local_files_only": True} if of_hub and not _reachable() else {}

    @property
    def nowhere(self) -> bool:
        """Whether it can only be a path, and nothing is there."""
        return not HUB_NAME.fullmatch(self.source) and not os.path.exists(self.source)

    @property
    def found(self) -> bool:
        """Whether there is a folder of this name, or the hub's cache has its configuration."""
        of_hub = HUB_NAME.fullmatch(self.source)
        cached = of_hub and isinstance(try_to_load_from_cache(self.source, "config.json"), str)
        return bool(cached) or os.path.exists(self.source)


def _reachable() -> bool:
    """Whether the hub answers, asked once, through the user's own proxies and settings."""
    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception:  # of the network, or that the user has set HF_HUB_OFFLINE
        return False
    return True


def stamp(source: str) -> str:
    """Changes when a local checkpoint does, so that a retrained model is not answered from memory."""
    folder = Path(source)
    if not os.path.isdir(folder):  # as pathlib asks, but a name that no file system takes is none
        return ""
    # What a link points to; a link that leads nowhere has nothing to be stamped. One folder down lies a pooling.
    every = [each for pattern in ("*", "*/*") for each in folder.glob(pattern) if each.exists()]
    files = [(str(file), file.stat()) for file in every]
    return str(sorted((name, found.st_mtime_ns, found.st_size) for name, found in files))


def dtype_of(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise InvalidOption(f"unknown dtype '{dtype}'; expected one of {', '.join(DTYPES)}")
    found: torch.dtype = getattr(torch, dtype)
    return found


def load(request: Request, tokenizer: Any | None) -> tuple[Any, Any]:
    """The model and its tokenizer."""
    try:
        with quiet(), _same_random_state():
            # In inference mode the weights would be inference tensors, of no use to any gradient later.
            return outside_inference_mode(partial(_from_pretrained, request, tokenizer))
    except WherefromError:
        raise
    except Exception as error:  # whatever a broken checkpoint makes transformers raise
        raise refused(request, error) from error


def refused(request: Request, error: Exception, what: str = "model") -> WherefromError:
    """An error of transformers' in our words: what could not be opened, and why."""
    reason = _reason(error)
    if request.nowhere:
        reason = "there is no such folder, and it is no name on the Hub"
        if len(request.name.split()) > 1:
            reason += "; it looks like a text"
    elif request.cached_only and not request.found:
        reason = f"it is neither a folder nor in the cache, and {constants.ENDPOINT} cannot be reached"
    name = request.name if len(request.name) <= LONGEST else f"{request.name[:LONGEST]}…"
    kind = UnsupportedModel if request.found else UnknownName
    return kind(f"cannot open the {what} '{name}': {reason} ({zoo.expected()})")


def _reason(error: Exception) -> str:
    """The first sentence of an error that was not written for our users, with its kind where it needs one."""
    if type(error).__name__ == "UnpicklingError":
        return "its weights are a pickle with more than tensors in it, which torch refuses to load"
    lines = str(error).strip().splitlines()
    reason = lines[0].strip() if lines else ""
    if reason.endswith(":") and len(lines) > 1:
        reason = f"{reason} {lines[1].strip()}"
    told = isinstance(error, OSError | ValueError | RuntimeError | ImportError) and reason
    return reason if told else f"{type(error).__name__}: {reason}".rstrip(": ")


def _from_pretrained(request: Request, tokenizer: Any | None) -> tuple[Any, Any]:
    source = request.source
    refuse_unfinished(request.name, source)
    _refuse_adapters(request)
    _check_dtype(request)
    config = transformers.AutoConfig.from_pretrained(source, **OWN_CODE, **request.cached_only)
    task = request.task or _task_of(request, config)
    options = {**OWN_CODE, **request.cached_only, "ignore_mismatched_sizes": True, **dict(request.options)}
    if request.shipped:  # bfloat16 on disk, float32 when loaded; SDPA would make a causal model of GPT-2 blocks
        options = {"dtype": torch.float32, "attn_implementation": "eager", **options}
    auto = auto_class(task, config)
    if request.task and config.model_type in transformers.CONFIG_MAPPING and type(config) not in auto._model_mapping:
        raise UnsupportedModel(
            f"transformers has no {config.model_type} for {request.task}; leave task= out to open '{request.name}' "
            f"with the head it was trained with"
        )
    _refuse_other_classifier(request, config)
    model, info = auto.from_pretrained(source, output_loading_info=True, **options)
    _check_weights(request, task, info)
    if request.device is not None:
        model = placed(model, request.device)
    return model, _beside(request, model) if tokenizer is None else tokenizer


def placed(model: Any, device: str) -> Any:
    """The model on a device, if there is one of that name."""
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidOption(f"cannot use the device '{device}': {error}") from error


def auto_class(task: str, config: Any) -> Any:
    """The class that loads it: a classifier of pictures, or a model of speech, where the configuration is of one; and a
    language model that sees or hears, too, with all of that, as its weights have been saved."""
    seeing = transformers.AutoModelForMultimodalLM
    if task == "causal-lm" and _writes(config) and type(config) in seeing._model_mapping:
        return seeing
    speech = transformers.AutoModelForSpeechSeq2Seq
    if task == "seq2seq" and type(config) in speech._model_mapping:
        return speech
    texts = transformers.AutoModelForTextEncoding
    halved = any(name.endswith("EncoderModel") for name in config.architectures or ())  # saved without its decoder
    if task == "encoder" and halved and type(config) in texts._model_mapping:
        return texts
    pictures = transformers.AutoModelForImageClassification
    of_pictures = task == "classification" and type(config) in pictures._model_mapping
    return pictures if of_pictures else getattr(transformers, TASKS[task][0])


class Sides(NamedTuple):
    """What prepares texts and pictures for a model."""

    tokenizer: Any | None
    image_processor: Any | None


def sides_of(given: Any) -> Sides:
    """The same of a tokenizer, an image processor, or a processor that has both."""
    if isinstance(given, transformers.ImageProcessingMixin):
        return Sides(None, given)
    if hasattr(given, "image_processor"):
        return Sides(getattr(given, "tokenizer", None), given.image_processor)
    return Sides(given, None)


def _beside(request: Request, model: Any) -> Any:
    """The tokenizer of a model of texts; of pictures the image processor, with a tokenizer where texts come too."""
    reads = model.input_modalities if isinstance(model.input_modalities, tuple | list) else (model.input_modalities,)
    if "image" not in reads:
        return _tokenizer(request)
    processor = _where_there(transformers.AutoImageProcessor, request)
    tokenizer = _where_there(transformers.AutoTokenizer, request) if "text" in reads else None
    return Sides(tokenizer, processor)


def _where_there(auto: Any, request: Request) -> Any | None:
    """What prepares inputs, as the checkpoint has it; None where it has none or Pillow is missing."""
    try:
        return auto.from_pretrained(request.source, **OWN_CODE, **request.cached_only)
    except (OSError, ValueError, ImportError):
        return None


def _refuse_adapters(request: Request) -> None:
    """A folder with an adapter and no model: which head and how many labels it is for, it does not say."""
    folder = Path(request.source)
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        base = (_json(request, "adapter_config.json") or {}).get("base_model_name_or_path")
        raise UnsupportedModel(
            f"'{request.name}' holds an adapter and no model; load {base or 'its base model'} with the head it was "
            f"trained with, put the adapter on it by peft.PeftModel.from_pretrained(model, {request.name!r}) and pass "
            f"that"
        )


def refuse_unfinished(name: str, source: str) -> None:
    """A folder in which a training has begun, and which has no model until that comes to its end."""
    folder = Path(source)
    if (folder / UNFINISHED).exists() and not (folder / "config.json").exists():
        raise RunConflict(
            f"'{name}' holds a training that is not finished, and no model yet; repeat the `wherefrom train` command "
            f"that began it, and it goes on to its end"
        )


def _tokenizer(request: Request) -> Any | None:
    """None where the checkpoint has none: transformers would make one up that knows no word."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(request.source, **OWN_CODE, **request.cached_only)
    return tokenizer if len(tokenizer) > len(tokenizer.all_special_ids) else None


def _check_dtype(request: Request) -> None:
    config, _ = transformers.PreTrainedConfig.get_config_dict(request.source, **request.cached_only)
    named = config.get("dtype", config.get("torch_dtype"))
    dtype = getattr(torch, named, named) if isinstance(named, str) else named
    if named not in (None, "auto") and not isinstance(dtype, torch.dtype):
        raise DamagedFile(
            f"the checkpoint's config.json names the dtype {named!r}; expected one of {', '.join(DTYPES)}"
        )


def _refuse_other_classifier(request: Request, config: Any) -> None:
    """A head over the text and one over its tokens have weights of the same names and shapes: either would load."""
    saved = task_in(config)
    if {request.task, saved} == {"classification", "token-classification"}:
        raise UnsupportedModel(
            f"'{request.name}' was saved as {config.architectures[0]}: its head was trained for {saved} and not for "
            f"{request.task}; leave task= out to open it with that head, or take task='encoder'"
        )


def _check_weights(request: Request, task: str, info: Mapping[str, Any]) -> None:
    """What transformers would say in its report: weights that are missing, do not fit or are left over."""
    if wrong := sorted(info["mismatched_keys"]):
        name, found, expected = wrong[0]
        if "ignore_mismatched_sizes" not in dict(request.options):
            raise DamagedFile(
                f"the weights of the checkpoint '{request.name}' do not fit its config.json: {name} is "
                f"{tuple(found)} where {tuple(expected)} is expected"
                f"{f', and {len(wrong) - 1} more' if len(wrong) > 1 else ''}"
            )
    # A bare encoder may have been trained without the pooler, which no map looks at.
    missing = sorted(name for name in info["missing_keys"] if task != "encoder" or "pooler" not in name)
    if missing:
        other = "the head it was trained with (task=), or as a bare encoder"
        raise UnsupportedModel(
            f"the checkpoint '{request.name}' has no weights for {some(missing)}, which would be random; open it with "
            f"{other if task != 'encoder' else 'the head it was trained with (task=)'}"
        )
    left = sorted(name for name in info["unexpected_keys"] if re.search(r"\.\d+\.", name))
    if left and not DEPTH.intersection(dict(request.options)):  # unless fewer layers were asked for
        warn(
            f"the checkpoint '{request.name}' has weights that the model does not use: {some(left)}; does its "
            f"config.json name all its layers?"
        )


def some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _is_no_report(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    return "LOAD REPORT" not in message and "checkpoint seem corrupted" not in message


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bar over the weights of a small model, and no report: what is wrong we say ourselves."""
    reports = logging.getLogger("transformers.modeling_utils")
    try:
        reports.addFilter(_is_no_report)
        with no_bars():
            yield
    finally:
        reports.removeFilter(_is_no_report)


@contextmanager
def no_bars() -> Iterator[None]:
    """No progress bars of transformers, over weights that are read or written; the caller's setting comes back."""
    bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            transformers.logging.enable_progress_bar()


@contextmanager
def _same_random_state() -> Iterator[None]:
    """torch draws numbers for weights before they are read."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def task_in(config: Any) -> str:
    """The head a checkpoint was saved with; Gemma 3 and LLaVA are named like encoders with a decoder, and are none."""
    for architecture in config.architectures or ():
        for task, (_, endings) in TASKS.items():
            if architecture.endswith(endings):
                return "causal-lm" if task == "seq2seq" and not config.is_encoder_decoder else task
    return "encoder"


def _writes(config: Any) -> bool:
    """Whether it was saved as …ForConditionalGeneration."""
    return any(str(each).endswith(TASKS["seq2seq"][1]) for each in config.architectures or ())


def _task_of(request: Request, config: Any) -> str:
    """The same, and what becomes of a head that is none of those."""
    task, saved = task_in(config), [str(each) for each in config.architectures or ()]
    if task != "encoder" or not saved or any(each.endswith(TASKS["encoder"][1]) for each in saved):
        return task
    if saved[0].endswith("ForMultipleChoice"):
        raise UnsupportedModel(
            f"'{request.name}' was saved as {saved[0]}, which reads several texts at once: multiple choice is not "
            f"explained. task='encoder' opens what is under its head"
        )
    warn(
        f"'{request.name}' was saved as {saved[0]}, whose head wherefrom does not know, and is opened without it, as a "
        f"bare encoder, as task='encoder' opens it without this warning where one can say so"
    )
    return task


# How sentence-transformers names its poolings, and the readout position of each.
POOLINGS = {"cls": "first", "cls_token": "first", "mean": "mean", "mean_tokens": "mean", "lasttoken": "last"}


def pooling(request: Request) -> str | None:
    """Which position a sentence embedding is read from, as a sentence-transformers checkpoint says in its folder."""
    modules = _json(request, "modules.json") or []
    where = next((each.get("path") for each in modules if str(each.get("type", "")).endswith(".Pooling")), "1_Pooling")
    config = _json(request, f"{where}/config.json")
    if config is None:
        return None
    flags = [key.removeprefix("pooling_mode_") for key, on in config.items() if key.startswith("pooling_mode_") and on]
    modes = flags or [str(config.get("pooling_mode"))]
    if len(modes) == 1 and modes[0] in POOLINGS:
        return POOLINGS[modes[0]]
    warn(
        f"'{request.name}' pools its tokens by {' and '.join(modes)}, which is no single readout position; say "
        f"with position= which one is meant"
    )
    return None


def unread(request: Request) -> tuple[str, ...]:
    """What a sentence-transformers checkpoint puts after its pooling and a bare encoder leaves out; cosines need it."""
    kinds = [str(each.get("type", "")).rpartition(".")[2] for each in _json(request, "modules.json") or []]
    return tuple(kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize"))


def _json(request: Request, name: str) -> Any | None:
    """A file of a checkpoint, in a folder or on the hub; None if there is none."""
    found = transformers.utils.cached_file(
        request.source,
        name,
        **request.cached_only,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if found is None:
        return None
    try:
        return json.loads(Path(found).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedFile(f"cannot read {name} of the model '{request.source}': {error}") from error
