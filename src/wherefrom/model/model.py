"""A model whose parts are known: what capture, targets and methods work with. It is opened by opening.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import torch
import transformers
from torch import nn

from wherefrom.errors import InvalidOption, UnsupportedModel
from wherefrom.model.batching import by_length
from wherefrom.model.compiling import Compile
from wherefrom.model.forward import forward, taken_by
from wherefrom.model.inputs import Reader
from wherefrom.model.layout import Family
from wherefrom.model.linear import device_of
from wherefrom.model.norm import norms_of
from wherefrom.model.parts import Block, Norm, norm_of, submodule, submodules
from wherefrom.model.pictures import Preparing, reads
from wherefrom.model.proof import Proof, proved
from wherefrom.model.sentences import Batch, Sentence
from wherefrom.model.side_by_side import one_block
from wherefrom.model.sound import FEATURES
from wherefrom.model.traits import Traits
from wherefrom.model.undo import configs, outside_inference_mode, parts_of, without_autocast, written_on
from wherefrom.model.unread_inputs import OtherInputs, other_inputs
from wherefrom.work import BatchShape

POOLED = {
    "cls": "first",
    "bos": "first",
    "mean": "mean",
    "late": "mean",
}  # config.classifier_pooling, and what it reads


# What to do with a text that is too long, by the model's task.
WINDOWS = "use long='windows' to explain all of it or truncate=True to cut it"
SHORTEN = {
    "classification": WINDOWS,
    "encoder": WINDOWS,
    "causal-lm": "shorten it; truncate=True keeps its beginning, and explains the word after that",
}
WHOLE = "; or load it with attention_type='original_full': in longer texts its attention leaves tokens out"
CUT = "shorten it around what is asked, or cut it with truncate=True"


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
    processor: Any | None = None  # of a model of pictures: what prepares them,
    both: Any | None = None  # and the whole of which it is the image side, beside a side for texts (CLIP)
    dense: int | None = None  # how many tokens it reads before its attention leaves some out (model/dense.py)
    prove: bool = True  # whether its passes are compared with the model's own (model/plain_pass.py)
    compile: Compile = "auto"  # when kernels in Triton run on a GPU
    nearest: Proof | None = None  # where no blocks are known: how the shape that comes nearest to them fails
    unfit: str | None = None  # why the row of its own type does not fit

    def __post_init__(self) -> None:
        vars(self)["_seen"] = _changes(self.model)

    def __repr__(self) -> str:
        return f"<Model '{self.name}': {self.task}, {self.family.name}>"

    @cached_property
    def pretrained(self) -> transformers.PreTrainedModel:
        return pretrained_in(self.model)

    @property
    def config(self) -> Any:
        return self.pretrained.config

    @property
    def base(self) -> nn.Module:
        """Where the parts are; of a model of texts and pictures (Gemma 3, LLaVA), the side that reads texts."""
        base: nn.Module = self.pretrained.base_model
        return self._side or base

    @property
    def images(self) -> bool:
        """Whether it reads pictures, and no text."""
        return bool(self.pretrained.main_input_name == "pixel_values")

    @property
    def sizes(self) -> Any:
        """The configuration that says how large the parts are: of a model of images and texts, that of its side."""
        if self.images:
            return getattr(self.config, "vision_config", None) or self.config
        return self.config if self._side is None else self._side.config

    @cached_property
    def _side(self) -> transformers.PreTrainedModel | None:
        return language_side(self.pretrained)

    @property
    def words(self) -> nn.Module:
        """The word embeddings; of a model of pictures what embeds their patches, special tokens and positions."""
        if self.images and self.family.embeddings:
            return self.embeddings
        found: nn.Module = self.pretrained.get_input_embeddings()
        return found

    @property
    def _table(self) -> nn.Embedding:
        """The word embeddings, which an adapter may have inside."""
        return next(each for each in self.words.modules() if isinstance(each, nn.Embedding))

    @property
    def hears(self) -> bool:
        """Whether its source is sound (Whisper)."""
        return self.two_streams and str(self.pretrained.main_input_name) == FEATURES

    @property
    def embedders(self) -> list[nn.Module]:
        """The modules that embed tokens, in the order in which they run; one may serve both streams of a pair."""
        if not self.two_streams:
            return [self.words] if self.family.mapped else self._tied_words
        stacks = ("decoder",) if self.hears else ("encoder", "decoder")
        return list(dict.fromkeys(self.part(f"{stack}.embed_tokens") for stack in stacks))

    @cached_property
    def _tied_words(self) -> list[nn.Module]:
        """The word embeddings under every name: of a model that is not known, any of these may run (T5's encoder)."""
        own, modules = getattr(self.words, "weight", None), self.pretrained.modules()
        every: list[nn.Module] = [each for each in modules if isinstance(each, nn.Embedding) and each.weight is own]
        return every or [self.words]

    @cached_property
    def written_on(self) -> list[nn.Module]:
        """The parts on which a pass of the model itself leaves something."""
        return written_on(self.model)

    @property
    def width(self) -> int:
        """Of what embeds the tokens."""
        return int(self.sizes.hidden_size if self.images else self._table.embedding_dim)

    @property
    def embeddings(self) -> nn.Module:
        """The module that gives the first hidden states; the word embeddings where no other is known."""
        if self.family.embeddings:
            found: nn.Module = self.part(self.family.embeddings)
            return found
        return self.words if self.family.mapped else self._tied_words[-1]  # the one that stands in a stack of its own

    def part(self, path: str) -> Any:
        return submodule(self.base, path)

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks, in the order in which they are made; one that is shared between layers stands once."""
        if not self.family.mapped:
            return []
        return self._stack(self.family) + (self._stack(*self.family.decoder) if self.family.decoder else [])

    def _stack(self, *steps: Family) -> list[Block]:
        """The blocks of a stack, each as its steps."""
        closing, layers = steps[-1].closing, steps[-1].layers
        width = self.width  # the stream's, where a norm after the last block does not say its own
        after: Block | Norm | None = (
            outside_inference_mode(lambda: norm_of(self.part(closing), width)) if closing else None
        )
        found: list[Block] = []
        for module in reversed(submodules(self.base, layers)):
            for step in reversed(steps):
                after = Block(module, step, self._configured("attention_heads", "num_attention_heads", layers), after)
                found.insert(0, after)
        return found

    @cached_property
    def norms(self) -> list[tuple[nn.Module, Norm | UnsupportedModel]]:
        """Every norm, in the blocks or not, with the module that it is, or why it is none that is known."""
        return outside_inference_mode(lambda: list(norms_of(self.model)))

    def refreshed(self) -> Model:
        """Itself, without what it kept of weights that have been changed since, by training or by hand."""
        if (now := _changes(self.model)) != vars(self)["_seen"]:
            for name in [*vars(self)]:
                if isinstance(getattr(type(self), name, None), cached_property):
                    del vars(self)[name]
            vars(self)["_seen"] = now
        return self

    @cached_property
    def proof(self) -> Proof:
        """What rebuilding the blocks from their parts gave; found on opening, unless that was told not to look."""
        return proved(self)

    @cached_property
    def side_by_side(self) -> Block | None:
        """All blocks as one, where they are alike and each runs once."""
        return outside_inference_mode(lambda: one_block(self.blocks if len(self.blocks) == self.depth else []))

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
        if self.two_streams:
            return len(self.blocks)
        # ALBERT runs each group of blocks several times.
        return self._configured("layers", "num_hidden_layers") * int(getattr(self.sizes, "inner_group_num", 1))

    def _configured(self, of_decoder: str, name: str, layers: str | None = None) -> int:
        """A number of the configuration; of the decoder of a pair (BART) its own."""
        layers = self.family.layers if layers is None else layers
        pair = getattr(self.config, f"decoder_{of_decoder}", None) if layers.startswith("decoder.") else None
        return int(getattr(self.sizes, name, 0) if pair is None else pair)

    @property
    def two_streams(self) -> bool:
        """Whether it is an encoder and a decoder that reads it: one token axis, source and then target."""
        return self.family.decoder is not None

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it."""
        if self.family.causal:
            return bool(getattr(self.sizes, "is_causal", True))
        return bool(getattr(self.sizes, "is_decoder", False))

    @property
    def reads(self) -> str:
        """What the head of a sequence classifier reads: the "first" token, the "last", the "mean" of all; "unknown"."""
        if self.images:
            return reads(self)
        if self.task == "encoder" and not self.family.mapped:  # which has no token of its own for all of them
            return "mean"
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
        return 0 if self.images else self._table.num_embeddings

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
        """How many tokens the model can read, from its position embeddings, and attend to, each to all."""
        longest = self.family.longest(self.sizes, self.pad_id)
        return min((most for most in (longest, self.dense) if most is not None), default=None)

    @property
    def pads(self) -> bool:
        """Whether sentences of different length may share a batch: not under a head that might look at padding."""
        return self.stacks and self.family.mapped

    @property
    def stacks(self) -> bool:
        """Whether several sentences of one length may share a batch."""
        # A GPT-2 classifier finds the end of a sentence by its padding token and refuses batches without one.
        first = self.images or self.task != "classification" or self.reads in ("first", "mean")
        return first or getattr(self.config, "pad_token_id", None) is not None

    def need_blocks(self, what: str, instead: str = "") -> None:
        """Refuse what follows a model block by block where the blocks are not known."""
        if not self.family.mapped:
            if self.unfit is not None:
                raise UnsupportedModel(
                    f"{what} follows a model through its blocks, which are not those that wherefrom knows for "
                    f"'{self.family.name}': {self.unfit}.{instead}"
                )
            near = "" if self.nearest is None else f" Taken for the shape that comes nearest, {self.nearest}."
            raise UnsupportedModel(
                f"{what} follows a model through its blocks, which wherefrom does not know for '{self.family.name}' "
                f"(docs/models.md lists those it knows, with transformers' own heads).{near}{instead}"
            )

    def reader(
        self, *, truncate: bool = False, tokenizer_kwargs: Mapping[str, Any] | None = None, long: str | None = None
    ) -> Reader:
        """What turns inputs into sentences for this model; the arguments are those of `explain`, long=None of a caller
        that has none such."""
        if self.two_streams and long == "windows":
            raise InvalidOption("long='windows' is for one stream of tokens; cut a long source (truncate=True)")
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
            two_streams=self.two_streams,
            pictures=self.preparing if self.images else None,
            shorten=("shorten it" if long is None else SHORTEN.get(self.task, CUT)) + WHOLE * (self.dense is not None),
            fills=self.mask_token if self.task == "masked-lm" else None,
            others=self._other_inputs,
        )

    @cached_property
    def _other_inputs(self) -> OtherInputs:
        return other_inputs(self.pretrained, taken_by(self.model.forward) | taken_by(self.pretrained.forward))

    @property
    def preparing(self) -> Preparing:
        """How pictures are prepared for it."""
        more = int(getattr(self.sizes, self.family.registers, 0)) if self.family.registers else 0
        patch = self.sizes.patch_size
        special = (*self.family.special, *(f"[REG{place}]" for place in range(more)))
        sides = (patch, patch) if isinstance(patch, int) else tuple(patch)
        return Preparing(self.name, self.processor, sides, special, beside_texts=self.both is not None)

    def batches(self, sentences: Sequence[Sentence], size: int, *, tokens: float = inf) -> Iterator[list[int]]:
        """Which sentences share a batch of at most `size` (and `tokens`, with padding), by their places."""
        lengths, shapes = [len(each) for each in sentences], [each.shape for each in sentences]
        return by_length(lengths, size if self.pads else 1, tokens=tokens, shapes=self.kinds(lengths, shapes))

    def kinds(self, lengths: Sequence[int], shapes: Sequence[tuple[int, ...]] = ()) -> Sequence[tuple[int, ...]]:
        """What may share a batch: pictures of one shape, and texts whose positions turn by the same angles."""
        return [(sum(n > end for end in self._turning),) for n in lengths] if self._turning else shapes

    @cached_property
    def _turning(self) -> set[int]:
        """LongRoPE turns all of a batch by other angles where its longest text has more tokens than this."""
        every = [getattr(config, "rope_parameters", None) or {} for config in configs(self.model)]
        every += [each for rope in every for each in rope.values() if isinstance(each, Mapping)]  # by kinds of layers
        return {each["original_max_position_embeddings"] for each in every if each.get("rope_type") == "longrope"}

    def shape(self, lengths: tuple[int, ...]) -> BatchShape:
        """A batch of sentences so long in this model, whose blocks are known."""
        block = self.blocks[0]
        width, size = block.w_o.shape[-1], block.w_o.element_size()
        return BatchShape(lengths, self.depth, block.heads, width, block.units, size)

    def forward(self, batch: Batch) -> Any:
        """The model's own forward pass on a batch."""
        return without_autocast(lambda: forward(self, batch))


def pretrained_in(model: nn.Module) -> transformers.PreTrainedModel:
    """The transformers model that a module is or has inside."""
    return next(part for part in model.modules() if isinstance(part, transformers.PreTrainedModel))


def language_side(inner: transformers.PreTrainedModel) -> transformers.PreTrainedModel | None:
    """Of a model that reads texts and pictures, or sounds, the part that reads texts; None of any other."""
    for name in ("language_model", "text_model"):
        found = getattr(inner.base_model, name, None)
        if isinstance(found, transformers.PreTrainedModel):
            side: transformers.PreTrainedModel = found.base_model  # of a whole language model (Qwen2-Audio), its stack
            return side if side.get_input_embeddings() is inner.get_input_embeddings() else None
    return None


def _changes(model: nn.Module) -> int:
    """How often weights have been written to, as torch counts it (not of those made for inference alone)."""
    weights = {id(each): each for part in parts_of(model) for each in part._parameters.values() if each is not None}
    try:
        return sum(each._version for each in weights.values())
    except RuntimeError:  # some are made for inference
        return sum(each._version for each in weights.values() if not each.is_inference())
