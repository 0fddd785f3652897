"""Opening a model: a name, a folder or a loaded model becomes a `Model`, or a clear error."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

import torch
import transformers
from torch import nn
from transformers.utils import ModelOutput

from wherefrom.defaults import DEFAULT_MODEL
from wherefrom.errors import InvalidOption, UnsupportedModel, WherefromError
from wherefrom.model.batching import by_length
from wherefrom.model.families import FAMILIES, candidates, unmapped
from wherefrom.model.inputs import Batch, Reader, Sentence, collate
from wherefrom.model.layout import Family
from wherefrom.model.linear import device_of
from wherefrom.model.loading import TASKS, Request, dtype_of, load, pooling, stamp, unread
from wherefrom.model.parts import Block, Norm, norm_of, submodule, submodules
from wherefrom.model.proof import Proof, proved, refuse_broken
from wherefrom.model.traits import Traits
from wherefrom.model.undo import borrowed, evaluating, hook, outside_inference_mode
from wherefrom.model.wrapped import unwrapped
from wherefrom.options import DeviceLike, DtypeLike, Keywords
from wherefrom.typecheck import checks_arguments, kind_of, shown

POOLED = {
    "cls": "first",
    "bos": "first",
    "mean": "mean",
    "late": "mean",
}  # config.classifier_pooling, and what it reads
PROBED = (3, 4)  # the lengths of the texts on which an unknown head is tried


@dataclass(frozen=True, eq=False)
class Model:
    """A model whose parts are known: what capture and the targets work with.

    Of an architecture without a row in families.py, or under a head of somebody's own, only the input embeddings and
    the output are known (`family.mapped` is False): enough for methods that look at nothing else.
    """

    model: Any  # a PreTrainedModel, or a module with one inside
    tokenizer: Any | None
    family: Family
    task: str  # a key of TASKS
    name: str
    pooling: str | None = None  # the readout position of a sentence embedding: "first", "mean" or "last"
    classes: int | None = None  # how many a head of somebody's own has, whatever the config says
    then: tuple[nn.Module, ...] = ()  # what a sentence embedding goes through after pooling
    unread: tuple[str, ...] = ()  # what it should go through and is not there
    nearest: Proof | None = None  # where no blocks are known: how the shape that comes nearest to them fails

    def __repr__(self) -> str:
        return f"<Model '{self.name}': {self.task}, {self.family.name}>"

    @cached_property
    def pretrained(self) -> transformers.PreTrainedModel:
        return _pretrained(self.model)

    @property
    def config(self) -> Any:
        return self.pretrained.config

    @property
    def base(self) -> nn.Module:
        base: nn.Module = self.pretrained.base_model
        return base

    @property
    def words(self) -> nn.Embedding:
        """The word embeddings."""
        found: nn.Embedding = self.pretrained.get_input_embeddings()
        return found

    @property
    def embeddings(self) -> nn.Module:
        """The module that gives the first hidden states; the word embeddings where no other is known."""
        found: nn.Module = self.part(self.family.embeddings) if self.family.embeddings else self.words
        return found

    def part(self, path: str) -> Any:
        return submodule(self.base, path)

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks, in the order in which they are made; one that is shared between layers stands once."""
        if not self.family.mapped:
            return []
        closing = self.family.closing
        width = self.words.embedding_dim  # the stream's, where a norm after the last block does not say its own
        after: Block | Norm | None = (
            outside_inference_mode(lambda: norm_of(self.part(closing), width)) if closing else None
        )
        found: list[Block] = []
        for module in reversed(submodules(self.base, self.family.layers)):
            after = Block(module, self.family, self.heads, after)
            found.insert(0, after)
        return found

    @cached_property
    def proof(self) -> Proof:
        """What rebuilding the blocks from their parts gave; found on opening, unless that was told not to look."""
        return proved(self)

    @cached_property
    def fixed(self) -> dict[tuple[str, str], torch.Tensor]:
        """The embeddings of texts that others are compared with, by text and pooling."""
        return {}

    @cached_property
    def traits(self) -> Traits:
        """What the blocks are like."""
        return Traits(self)

    @property
    def depth(self) -> int:
        """How many blocks a forward pass runs; a model whose blocks are not known counts as one."""
        if not self.family.mapped:
            return 1
        # ALBERT runs each group of blocks several times.
        return self._configured("layers", "num_hidden_layers") * int(getattr(self.config, "inner_group_num", 1))

    def _configured(self, of_decoder: str, name: str) -> int:
        """A number of the configuration; where only the decoder of a pair is left (BART), its own."""
        pair = (
            getattr(self.config, f"decoder_{of_decoder}", None) if self.family.layers.startswith("decoder.") else None
        )
        return int(getattr(self.config, name, 0) if pair is None else pair)

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it."""
        if self.family.causal:
            return bool(getattr(self.config, "is_causal", True))
        return bool(getattr(self.config, "is_decoder", False))

    @property
    def reads(self) -> str:
        """What the head of a sequence classifier reads: the "first" token, the "last", the "mean" of all; "unknown"."""
        asked = getattr(self.config, "classifier_pooling", None) if self.task == "classification" else None
        return POOLED.get(str(asked), self.family.reads)

    @property
    def device(self) -> torch.device:
        return device_of(self.words)

    @property
    def dtype(self) -> str:
        return str(self.pretrained.dtype).removeprefix("torch.")

    @property
    def labels(self) -> dict[int, str]:
        """By class id; a name that several classes share is told apart by the id."""
        named = {int(index): str(label) for index, label in self.config.id2label.items()}
        if self.classes is not None and sorted(named) != list(range(self.classes)):
            named = {index: f"LABEL_{index}" for index in range(self.classes)}
        shared = {label for label in named.values() if list(named.values()).count(label) > 1}
        return {index: f"{label} #{index}" if label in shared else label for index, label in named.items()}

    @property
    def vocabulary_size(self) -> int:
        return int(self.words.num_embeddings)

    @property
    def pad_id(self) -> int | None:
        pad = getattr(self.config, "pad_token_id", None)
        return getattr(self.tokenizer, "pad_token_id", None) if pad is None else int(pad)

    @property
    def mask_id(self) -> int | None:
        return getattr(self.tokenizer, "mask_token_id", None)

    @property
    def mask_token(self) -> str | None:
        """How the tokenizer writes a mask; None where it has none."""
        return getattr(self.tokenizer, "mask_token", None)

    @property
    def heads(self) -> int:
        """Attention heads of a block; 0 where the configuration does not say."""
        return self._configured("attention_heads", "num_attention_heads")

    @property
    def parameters(self) -> int:
        """How many weights the model has."""
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def max_length(self) -> int | None:
        """How many tokens the model can read, from its position embeddings."""
        return self.family.longest(self.config, self.pad_id)

    @property
    def pads(self) -> bool:
        """Whether sentences of different length may share a batch: not under a head that might look at padding."""
        return self.stacks and self.family.mapped

    @property
    def stacks(self) -> bool:
        """Whether several sentences of one length may share a batch."""
        # A GPT-2 classifier finds the end of a sentence by its padding token and refuses batches without one.
        first = self.task != "classification" or self.reads in ("first", "mean")
        return first or getattr(self.config, "pad_token_id", None) is not None

    def need_blocks(self, what: str, instead: str = "") -> None:
        """Refuse what follows a model block by block where the blocks are not known."""
        if not self.family.mapped:
            near = "" if self.nearest is None else f" Taken for the shape that comes nearest, {self.nearest}."
            raise UnsupportedModel(
                f"{what} follows a model through its blocks, which wherefrom does not know for '{self.family.name}' "
                f"(docs/models.md lists those it knows, with transformers' own heads).{near}{instead}"
            )

    def reader(
        self, *, truncate: bool = False, tokenizer_kwargs: Mapping[str, Any] | None = None, long: str = "error"
    ) -> Reader:
        """What turns inputs into sentences for this model; the arguments are those of `explain`."""
        if truncate and long == "windows":
            raise InvalidOption(
                "truncate=True cuts a long text and long='windows' reads all of it; leave one of them out"
            )
        return Reader(
            self.tokenizer,
            self.vocabulary_size,
            self.pad_id,
            self.max_length,
            truncate=truncate or long == "truncate",
            tokenizer_kwargs=tokenizer_kwargs,
            any_length=long == "windows",
            type_count=getattr(self.config, "type_vocab_size", None),
        )

    def batches(self, sentences: Sequence[Sentence], size: int, *, tokens: float = inf) -> Iterator[list[int]]:
        """Which sentences share a batch of at most `size` (and `tokens`, with padding), by their places."""
        return by_length([len(each) for each in sentences], size if self.pads else 1, tokens=tokens)

    def forward(self, batch: Batch) -> Any:
        """The model's own forward pass on a batch."""
        if batch.embedded is None:
            return self._forward(batch)
        embedded, used = batch.embedded, False
        thread = threading.get_ident()  # hooks sit on the module, for all threads

        def stands_in(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal used
            for given, instead in ((batch.ids, embedded), (batch.ids.T, embedded.T)):  # XLNet: token by token
                if threading.get_ident() == thread and args and torch.equal(args[0].cpu(), given):
                    used = True
                    return (instead.to(args[0].device), *args[1:]), kwargs
            return None  # GPT-2 embeds its token types by the table of its words

        def run() -> Any:
            hook(self.words, stands_in, before=True)
            return self._forward(batch)

        found = borrowed(run)
        if not used:
            raise UnsupportedModel(f"{self.name} does not embed the tokens it is given; wherefrom cannot replace any")
        return found

    def _forward(self, batch: Batch) -> Any:
        accepted = inspect.signature(self.model.forward).parameters
        own = self.model is self.pretrained
        inputs: dict[str, Any] = {"input_ids": batch.ids}
        if own or "attention_mask" in accepted:
            inputs["attention_mask"] = batch.attention_mask
        if batch.types is not None and "token_type_ids" in accepted:
            more = len(getattr(self.config, "type_vocab_sizes", ())) - 1  # TAPAS: segment, column, row, … of each token
            inputs["token_type_ids"] = batch.types if more < 0 else nn.functional.pad(batch.types[..., None], (0, more))
        if "use_cache" in accepted:
            inputs["use_cache"] = False
        tensors = {k: v.to(self.device) if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
        return _as_output(self.model(**tensors, **({"return_dict": True} if own else {})))


def _as_output(found: Any) -> Any:
    """What a model returned under transformers' names: bare logits, alone or first of a tuple, get theirs."""
    if isinstance(found, ModelOutput):
        return found
    if isinstance(found, Mapping):
        found = found.get("logits")
    elif isinstance(found, tuple | list):
        found = next(iter(found), None)
    logits = getattr(found, "logits", found)
    if not isinstance(logits, torch.Tensor):
        raise UnsupportedModel(f"the model returned {kind_of(found)}; expected logits, or an output that has them")
    return ModelOutput(logits=logits)


def _pretrained(model: nn.Module) -> transformers.PreTrainedModel:
    """The transformers model that a module is or has inside."""
    return next(part for part in model.modules() if isinstance(part, transformers.PreTrainedModel))


ModelLike: TypeAlias = str | Path | nn.Module | transformers.Pipeline | Model
TokenizerLike: TypeAlias = transformers.PreTrainedTokenizerBase | None


@checks_arguments
def open_model(
    model: ModelLike = DEFAULT_MODEL,
    tokenizer: TokenizerLike = None,
    *,
    task: str | None = None,
    device: DeviceLike = None,
    dtype: DtypeLike = None,
    prove: bool = True,
    model_kwargs: Keywords = None,
) -> Model:
    """Open a shipped model ("wherefrom/sentiment"), a hub id, a folder, a loaded model with tokenizer, or a pipeline.

    `model_kwargs` go to `from_pretrained`. A loaded model is used where and as it is: `device`, `dtype` and
    `model_kwargs` are for models that wherefrom loads. `task` chooses the head when a checkpoint leaves it open.
    `prove=False` leaves out the proof that the blocks, rebuilt from their parts, give the model's own numbers: two
    passes on five tokens. Of a model that somebody changed, explanations may then be wrong without a word
    (docs/models.md).
    """
    if isinstance(model, Model):
        given = {"tokenizer": tokenizer, "device": device, "dtype": dtype, "model_kwargs": model_kwargs, "task": task}
        if unused := [name for name, value in given.items() if value is not None] + ["prove"] * (not prove):
            raise InvalidOption(f"{' and '.join(unused)} cannot be given with a model that is open already")
        return model
    if any(cls.__module__.startswith("transformers.pipelines.") for cls in type(model).__mro__):
        pipeline: Any = model
        model, tokenizer = pipeline.model, tokenizer or pipeline.tokenizer
    if task is not None and (not isinstance(task, str) or task not in TASKS):
        raise InvalidOption(f"unknown task {shown(task)}; expected one of {', '.join(TASKS)}")
    _refuse_kinds(tokenizer, device, dtype)
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
    if tokenizer is not None and not (callable(tokenizer) and hasattr(tokenizer, "convert_ids_to_tokens")):
        raise InvalidOption(f"tokenizer={shown(tokenizer)}; expected a tokenizer of transformers")
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
    inner = _pretrained(model)
    if type(inner).__module__.startswith("transformers_modules."):
        raise UnsupportedModel(
            f"{type(inner).__name__} is remote code, which may compute anything; wherefrom opens only the "
            f"architectures that come with transformers"
        )
    if getattr(inner.config, "add_cross_attention", False) or getattr(inner.config, "is_encoder_decoder", False):
        raise UnsupportedModel("models with cross-attention are not supported; expected an encoder or a decoder")
    if not isinstance(inner.get_input_embeddings(), nn.Embedding):
        raise UnsupportedModel(f"{type(inner).__name__} has no embeddings of tokens; expected a model that reads text")
    task = _task_of(model)
    if task is None:
        return _with_own_head(Model(model, tokenizer, unmapped(type(model).__name__), "classification", name))
    pooling = inside.pooling if task == "encoder" else None
    found = Model(model, tokenizer, unmapped(inner.config.model_type), task, name, pooling, then=inside.then)
    return _mapped(found, prove)


def _mapped(opened: Model, prove: bool) -> Model:
    """The model with the first row whose rebuilt blocks give its own numbers.

    An architecture without a row of its own is tried against the shapes that others share; where none fits, only its
    embeddings and its output are known. A row of its own that does not fit is an error: the model was changed. Without
    a proof the only row of an architecture is taken at its word; to choose among several takes one.
    """
    missing, unproved = list[str](), list[Proof]()
    known, rows = opened.family.name in FAMILIES, candidates(opened.family.name)
    for row in rows:
        tried = replace(opened, family=row)
        try:
            for block in tried.blocks:
                _look_up(block)
            if not prove and known and len(rows) == 1:
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
    if known:
        raise UnsupportedModel(
            f"{type(opened.pretrained).__name__}: {nearest or missing[0]}. Use an unmodified transformers model, or "
            f"add a family (CONTRIBUTING.md)"
        )
    return replace(opened, nearest=nearest)


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
        raise UnsupportedModel(
            f"{opened.family.name} has a head that wherefrom does not know, and it gives no logits for input_ids and "
            f"attention_mask alone ({type(error).__name__}: {error})"
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
