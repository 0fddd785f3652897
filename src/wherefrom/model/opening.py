"""Opening a model: a name, a folder or a loaded model becomes a `Model`, or a clear error."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import torch
import transformers
from torch import nn

from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import InvalidOption, UnsupportedModel, WherefromError
from wherefrom.model.compiling import Compile
from wherefrom.model.dense import attending_to_all
from wherefrom.model.families import candidates, has_row, unmapped
from wherefrom.model.loading import TASKS, Request, Sides, dtype_of, load, pooling, sides_of, stamp, unread
from wherefrom.model.model import Model, language_side, pretrained_in
from wherefrom.model.pairs import PAIRS
from wherefrom.model.parts import Block
from wherefrom.model.pictures import image_side
from wherefrom.model.proof import Proof, refuse_broken
from wherefrom.model.sentences import Sentence, collate
from wherefrom.model.stock import stock
from wherefrom.model.undo import borrowed, evaluating
from wherefrom.model.vision import VISION
from wherefrom.model.wrapped import unwrapped
from wherefrom.options import DeviceLike, DtypeLike, Keywords
from wherefrom.typecheck import checks_arguments, kind_of, shown

PROBED = (3, 4)  # the lengths of the texts on which an unknown head is tried
ModelLike: TypeAlias = str | Path | nn.Module | transformers.Pipeline | Model
TokenizerLike: TypeAlias = (
    transformers.PreTrainedTokenizerBase | transformers.ProcessorMixin | transformers.ImageProcessingMixin | None
)


@checks_arguments
def open_model(
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    *,
    processor: TokenizerLike = None,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    compile: Compile = "auto",
    model_kwargs: Keywords = None,
) -> Model:
    """Open a shipped model ("wherefrom/sentiment"), a hub id, a folder, a loaded model with tokenizer, or a pipeline.

    A model of images comes with its `processor` (also as `tokenizer`): an image processor, or for CLIP one of both.
    `model_kwargs` go to `from_pretrained`. A loaded model is used where and as it is: `device`, `dtype` and
    `model_kwargs` are for models that wherefrom loads. `task` chooses the head when a checkpoint leaves it open.
    `prove=False` leaves out the proof that the blocks, rebuilt from their parts, give the model's own numbers (two
    passes on five tokens, and two more where attention has windows), and the comparison of captured outputs with plain
    ones (a pass more on the first text). Explanations of a changed model may then be wrong without a word
    (docs/models.md). `compile`: when kernels in Triton, which a machine compiles once, run on a GPU: "auto", once there
    is so much to do that it is worth it, "always" or "never"; without them the same is done in steps of torch's.

    >>> model = wherefrom.open_model("wherefrom/sentiment")
    >>> wherefrom.explain("a deep and meaningful film .", model).prediction
    'positive'
    """
    if isinstance(model, Model):
        given = {
            "tokenizer": tokenizer,
            "processor": processor,
            "device": device,
            "dtype": dtype,
            "model_kwargs": model_kwargs,
            "task": task,
        }
        other = ["prove"] * (not prove) + ["compile"] * (compile != "auto")
        if unused := [name for name, value in given.items() if value is not None] + other:
            raise InvalidOption(f"{' and '.join(unused)} cannot be given with a model that is open already")
        return model.refreshed()
    found = _any_opened(model, tokenizer, processor, task, device, dtype, prove, model_kwargs)
    return found if compile == "auto" else replace(found, compile=compile)


def _any_opened(
    model: Any,
    tokenizer: Any,
    processor: Any,
    task: str | None,
    device: DeviceLike,
    dtype: DtypeLike,
    prove: bool,
    model_kwargs: Keywords,
) -> Model:
    if any(cls.__module__.startswith("transformers.pipelines.") for cls in type(model).__mro__):
        pipeline: Any = model
        images = getattr(pipeline, "image_processor", None)
        model, tokenizer = (
            pipeline.model,
            tokenizer or (Sides(pipeline.tokenizer, images) if images else pipeline.tokenizer),
        )
    if task is not None and (not isinstance(task, str) or task not in TASKS):
        raise InvalidOption(f"unknown task {shown(task)}; expected one of {', '.join(TASKS)}")
    _refuse_kinds(tokenizer, device, dtype)
    if processor is not None:
        texts, images = sides_of(processor)
        tokenizer = Sides(tokenizer or texts, images)
    if isinstance(model, str | Path):
        options = {**(model_kwargs or {}), **({} if dtype is None else {"dtype": dtype_of(dtype)})}
        request = Request(str(model), task, None if device is None else str(device), tuple(options.items()))
        try:
            hash(request)
        except TypeError:  # options such as a device_map are dictionaries
            return _load(request, tokenizer, prove)
        if tokenizer is not None:
            return _load(request, tokenizer, prove)
        return _load_once(request, stamp(request.source), prove)
    given = {"device": device, "dtype": dtype, "model_kwargs": model_kwargs, "task": task}
    if unused := [name for name, value in given.items() if value is not None]:
        raise InvalidOption(
            f"{' and '.join(unused)} cannot be given with a loaded model, which is used as it is; "
            f"move or convert the model yourself, or pass its name"
        )
    return _opened(model, tokenizer, prove=prove)


def _refuse_kinds(tokenizer: Any, device: Any, dtype: Any) -> None:
    """Refuse what is no tokenizer, device or dtype, before it fails somewhere inside."""
    found, images = sides_of(tokenizer)
    if found is not None and not (callable(found) and hasattr(found, "convert_ids_to_tokens")):
        raise InvalidOption(f"tokenizer={shown(tokenizer)}; expected a tokenizer of transformers")
    if images is not None and not callable(images):
        raise InvalidOption(f"processor={shown(images)}; expected an image processor of transformers")
    if device is not None and not isinstance(device, str | int | torch.device):
        raise InvalidOption(f"device={shown(device)}; expected a name such as 'cpu' or 'cuda:0', or a torch.device")
    if dtype is not None and not isinstance(dtype, str | torch.dtype):
        raise InvalidOption(f"dtype={shown(dtype)}; expected a name such as 'float32', or a torch.dtype")


def _opened(model: Any, tokenizer: Any | None, name: str | None = None, *, prove: bool) -> Model:
    inside = unwrapped(model)
    model, tokenizer = inside.model, inside.tokenizer if tokenizer is None else tokenizer
    name = inside.name if name is None else name
    unknown = not isinstance(model, nn.Module) or type(model).__module__.startswith("torch.")
    if unknown or not any(isinstance(part, transformers.PreTrainedModel) for part in model.modules()):
        raise InvalidOption(
            f"model is {kind_of(model)}; expected a model name, a folder, a transformers PreTrainedModel, a "
            f"module of yours around one, or a pipeline (of another wrapping: pass the model inside it)"
        )
    whole, (tokenizer, processor) = model, sides_of(tokenizer)
    if (side := image_side(model)) is not None:
        model = side
    inner = pretrained_in(model)
    if type(inner).__module__.startswith("transformers_modules."):
        raise UnsupportedModel(
            f"{type(inner).__name__} is remote code, which may compute anything; wherefrom opens only the "
            f"architectures that come with transformers"
        )
    pair = bool(getattr(inner.config, "is_encoder_decoder", False))
    if getattr(inner.config, "add_cross_attention", False) and not pair:
        raise UnsupportedModel("decoders with cross-attention and no encoder beside them are not supported")
    if inner.main_input_name == "pixel_values":
        both = None if side is None else whole
        found = Model(model, tokenizer, unmapped(""), "encoder", name, processor=processor, both=both, prove=prove)
        return _of_pictures(found)
    model, dense = attending_to_all(model)
    if not _embeds_tokens(inner):
        raise UnsupportedModel(
            f"{type(inner).__name__} has no embeddings of tokens; expected a model that reads text, and looks up its "
            f"tokens in one table"
        )
    task = _task_of(model)
    if task == "question-answering" and any(hasattr(each, "start_n_top") for each in model.modules()):
        raise UnsupportedModel(
            f"{type(model).__name__} looks for answers by a beam and gives no numbers of the other tokens; load its "
            f"checkpoint as {type(model).__name__}Simple, or by AutoModelForQuestionAnswering"
        )
    if task == "seq2seq" and not pair:
        task = "causal-lm"  # LLaVA and its like, which may see pictures, too: …ForConditionalGeneration
    if pair:
        _refuse_other_pairs(inner, model, task)
    if task is None:
        own = Model(model, tokenizer, unmapped(type(model).__name__), "classification", name, dense=dense, prove=prove)
        return _with_own_head(own)
    pooling = inside.pooling if task == "encoder" else None
    family = unmapped(inner.config.model_type)
    opened = Model(model, tokenizer, family, task, name, pooling, then=inside.then, dense=dense, prove=prove)
    return _mapped(opened)


def _embeds_tokens(inner: transformers.PreTrainedModel) -> bool:
    try:
        found = inner.get_input_embeddings()
    except NotImplementedError:  # transformers knows of none: sounds (Wav2Vec2), characters by their hashes (CANINE)
        return False
    adapted = type(found).__module__.startswith("peft.")
    return any(isinstance(each, nn.Embedding) for each in (found.modules() if adapted else [found]))


def _refuse_other_pairs(inner: transformers.PreTrainedModel, model: nn.Module, task: str | None) -> None:
    """Refuse an encoder with a decoder that writes no text, or whose blocks are not known."""
    name = inner.config.model_type
    if name not in PAIRS or task != "seq2seq" or model is not inner:
        raise UnsupportedModel(
            f"{type(inner).__name__} ('{name}') is an encoder with a decoder; of these wherefrom opens those that "
            f"write text (…ForConditionalGeneration, MarianMTModel) of {', '.join(PAIRS)}"
        )


def _of_pictures(opened: Model) -> Model:
    """A model of pictures with its row and its task."""
    kind, task = opened.config.model_type, "encoder" if opened.both is not None else _task_of(opened.model)
    if not has_row(kind) or task not in ("classification", "encoder"):
        raise UnsupportedModel(
            f"{type(opened.model).__name__} ('{kind}') reads pictures, of which wherefrom explains transformers' "
            f"classifiers and bare encoders of the types {', '.join(VISION)}"
        )
    return _mapped(replace(opened, family=unmapped(kind), task=task))


def _mapped(opened: Model) -> Model:
    """The model with the first row whose rebuilt blocks give its own numbers.

    An architecture without a row of its own is tried against the shapes that others share; where none fits, only its
    embeddings and its output are known. The same holds for an unmodified model whose configuration its own row does not
    fit (Granite's Mamba layers), and for the side for texts of a model that sees pictures, which may do what the row of
    such a side does not say (PaliGemma's prompt sees all of itself). A modified model that its row does not fit is
    refused; so is one of pictures or an encoder with a decoder, which need their blocks. Without a proof the only row
    of an architecture is taken at its word; to choose among several takes one.
    """
    missing, unproved = list[str](), list[Proof]()
    pair, side = opened.task == "seq2seq", None if opened.images else language_side(opened.pretrained)
    name = opened.family.name if side is None else side.config.model_type
    known, rows = has_row(name, pair=pair) and side is None, candidates(name, pair=pair)
    for row in rows:
        tried = replace(opened, family=row)
        try:
            for block in tried.blocks:
                _look_up(block)
            if not opened.prove and known and len(rows) == 1:
                return tried
            proof = tried.proof
        except WherefromError as error:
            missing.append(str(error))
            continue
        except Exception as error:  # another architecture's sizes, put through the formulas of this row
            if known:
                refuse_broken(opened)
            missing.append(f"its parts do not fit each other ({type(error).__name__}: {error})")
            continue
        if proof.holds:
            return tried
        unproved.append(proof)
    nearest = min(unproved, key=lambda proof: proof.worst.size, default=None)
    unfit = str(nearest or missing[0]) if known else None
    eager = nearest is not None and nearest.worst.part == "output"  # which says how to load it
    if known and (pair or opened.images or eager or not stock(opened.model)):
        raise UnsupportedModel(
            f"{type(opened.pretrained).__name__}: {unfit}. Use an unmodified transformers model, or "
            f"add a family (CONTRIBUTING.md)"
        )
    if opened.prove:
        refuse_broken(opened)  # of which no more is known than that it runs
    return replace(opened, nearest=nearest, unfit=unfit)


def _look_up(block: Block) -> None:
    """A modified model fails here, by name, and not in the middle of a pass."""
    for sublayer in (block.family.attention, block.family.ffn):
        for name, path in vars(sublayer).items():
            for each in path.split(" + ") if path and name not in ("packed", "biased") else ():
                block.part(each)
    for name in ("before", "after", "post", "ffn_before", "ffn_after", "ffn_post"):
        getattr(block, name)


def _task_of(model: nn.Module) -> str | None:
    """From the class name, or that of an ancestor (a user's subclass); None for a head of somebody's own."""
    for cls in type(model).__mro__:
        if not cls.__module__.startswith("transformers.models."):
            continue
        for task, (_, endings) in TASKS.items():
            if cls.__name__.endswith(endings) and not cls.__name__.endswith("PreTrainedModel"):
                return task
        break
    return None


def _with_own_head(opened: Model) -> Model:
    """What a head that transformers does not have is for, seen on texts of three and of four tokens.

    One length does not tell: a number for each of three tokens has the shape of three classes.
    """
    try:
        short, long = (_probed(opened, n) for n in PROBED)
    except Exception as error:
        if opened.family.name.endswith("ForMultipleChoice"):
            raise UnsupportedModel(
                f"{opened.family.name} reads several texts at once: multiple choice is not explained"
            ) from error
        raise UnsupportedModel(
            f"{opened.family.name} has a head that wherefrom does not know, and it gives no logits for input_ids and "
            f"attention_mask alone ({type(error).__name__}: {error}). Load its checkpoint with the class of one task, "
            f"such as AutoModelForSequenceClassification or AutoModelForMaskedLM, or let its forward return `.logits`"
        ) from error
    classes = short[-1] if short else 0
    if short == long == [1, classes]:
        return replace(opened, classes=classes)
    if [short, long] == [[1, n, classes] for n in PROBED]:
        if classes == opened.vocabulary_size:
            return replace(opened, task="causal-lm" if opened.mask_id is None else "masked-lm")
        return replace(opened, task="token-classification", classes=classes)
    kind = "one number for each token and no classes" if [short, long] == [[1, n] for n in PROBED] else "other logits"
    raise UnsupportedModel(
        f"{opened.family.name} gives {kind}: logits of shape {short} for a text of three tokens and {long} for one of "
        f"four; expected [1, classes] of both, or [1, tokens, classes]"
    )


@torch.no_grad()
def _probed(opened: Model, n: int) -> list[int]:
    """The shape of the logits for a text of n tokens."""
    probe = collate([Sentence([*range(n)], [""] * n, [False] * n, [None] * n, ())], opened.pad_id)

    def run() -> list[int]:
        evaluating(opened.model)
        return list(opened.forward(probe).logits.shape)

    return borrowed(run)


@lru_cache(maxsize=2)
def _load_once(request: Request, _stamp: str, prove: bool) -> Model:
    return _load(request, None, prove)


def _load(request: Request, tokenizer: Any | None, prove: bool) -> Model:
    opened = _opened(*load(request, tokenizer), request.name, prove=prove)
    return replace(opened, pooling=pooling(request), unread=unread(request)) if opened.task == "encoder" else opened
