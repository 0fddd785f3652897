"""Opening a model: a name, a folder or a loaded model becomes an `Opened`, or a clear error."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from whence.errors import WhenceError
from whence.model.block import Block, submodule, submodules
from whence.model.families import Family, family_of
from whence.model.inputs import Batch
from whence.model.loading import TASKS, Request, dtype_of, load, pooling, stamp


@dataclass(frozen=True, eq=False)
class Opened:
    """A model whose parts are known: what capture and the targets work with."""

    model: transformers.PreTrainedModel
    tokenizer: Any | None
    family: Family
    task: str  # a key of TASKS
    name: str
    pooling: str | None = None  # the readout position of a sentence embedding: "first", "mean" or "last"

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def base(self) -> nn.Module:
        base: nn.Module = self.model.base_model
        return base

    def part(self, path: str) -> Any:
        return submodule(self.base, path)

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks, in the order in which they are made; one that is shared between layers stands once."""
        heads = self.config.num_attention_heads
        return [Block(module, self.family, heads) for module in submodules(self.base, self.family.layers)]

    @property
    def depth(self) -> int:
        """How many blocks a forward pass runs."""
        # ALBERT runs each group of blocks several times.
        return int(self.config.num_hidden_layers) * int(getattr(self.config, "inner_group_num", 1))

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it."""
        if self.family.causal:
            return bool(getattr(self.config, "is_causal", True))
        return bool(getattr(self.config, "is_decoder", False))

    @property
    def device(self) -> torch.device:
        return self.model.get_input_embeddings().weight.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def labels(self) -> dict[int, str]:
        """By class id; a name that several classes share is told apart by the id."""
        named = {int(index): str(label) for index, label in self.config.id2label.items()}
        shared = {label for label in named.values() if list(named.values()).count(label) > 1}
        return {index: f"{label} #{index}" if label in shared else label for index, label in named.items()}

    @property
    def vocabulary_size(self) -> int:
        return int(self.model.get_input_embeddings().num_embeddings)

    @property
    def pad_id(self) -> int | None:
        pad = getattr(self.config, "pad_token_id", None)
        return getattr(self.tokenizer, "pad_token_id", None) if pad is None else int(pad)

    @property
    def mask_id(self) -> int | None:
        return getattr(self.tokenizer, "mask_token_id", None)

    @property
    def max_length(self) -> int | None:
        """How many tokens the model can read, from its position embeddings."""
        positions = getattr(self.config, "max_position_embeddings", None)
        if positions is None:
            return None
        lost = (self.pad_id or 0) + 1 if self.family.positions_after_pad else 0
        return int(positions) - lost

    @property
    def pads(self) -> bool:
        """Whether sentences of different length may share a batch."""
        # A GPT-2 classifier finds the end of a sentence by its padding token and refuses batches without one.
        return self.task != "classification" or self.family.reads != "last" or self.config.pad_token_id is not None

    def forward(self, batch: Batch) -> Any:
        """The model's own forward pass on a batch."""
        accepted = inspect.signature(self.model.forward).parameters
        inputs: dict[str, Any] = {"input_ids": batch.ids, "attention_mask": batch.attention_mask}
        if batch.types is not None and "token_type_ids" in accepted:
            inputs["token_type_ids"] = batch.types
        if "use_cache" in accepted:
            inputs["use_cache"] = False
        tensors = {k: v.to(self.device) if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
        return self.model(**tensors, return_dict=True)


def open_model(
    model: str | Path | transformers.PreTrainedModel | Opened,
    tokenizer: Any | None = None,
    *,
    task: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
) -> Opened:
    """Open a shipped model ("whence/sentiment"), a hub id, a folder, a loaded model with its tokenizer, or a pipeline.

    `model_kwargs` go to `from_pretrained`. A loaded model is used where and as it is: `device`, `dtype` and
    `model_kwargs` are for models that whence loads. `task` chooses the head when a checkpoint leaves it open.
    """
    if isinstance(model, Opened):
        given = {"tokenizer": tokenizer, "device": device, "dtype": dtype, "model_kwargs": model_kwargs, "task": task}
        if unused := [name for name, value in given.items() if value is not None]:
            raise WhenceError(f"{' and '.join(unused)} cannot be given with a model that is open already")
        return model
    if any(cls.__module__.startswith("transformers.pipelines.") for cls in type(model).__mro__):
        pipeline: Any = model
        model, tokenizer = pipeline.model, tokenizer or pipeline.tokenizer
    if task is not None and task not in TASKS:
        raise WhenceError(f"unknown task '{task}'; expected one of {', '.join(TASKS)}")
    if isinstance(model, str | Path):
        options = {**(model_kwargs or {}), **({} if dtype is None else {"dtype": dtype_of(dtype)})}
        request = Request(str(model), task, None if device is None else str(device), tuple(options.items()))
        try:
            hash(request)
        except TypeError:  # options such as a device_map are dictionaries
            return _load(request, tokenizer)
        return _load(request, tokenizer) if tokenizer is not None else _load_once(request, stamp(request.source))
    given = {"device": device, "dtype": dtype, "model_kwargs": model_kwargs, "task": task}
    if unused := [name for name, value in given.items() if value is not None]:
        raise WhenceError(
            f"{' and '.join(unused)} cannot be given with a loaded model, which is used as it is; "
            f"move or convert the model yourself, or pass its name"
        )
    return _opened(model, tokenizer, name=_name(model))


def _opened(model: Any, tokenizer: Any | None, name: str) -> Opened:
    if not isinstance(model, transformers.PreTrainedModel):
        raise WhenceError(
            f"model is a {type(model).__name__}; expected a model name, a folder, a transformers "
            f"PreTrainedModel or a pipeline (a compiled or wrapped model: pass the model inside it)"
        )
    if type(model).__module__.startswith("transformers_modules."):
        raise WhenceError(
            f"{type(model).__name__} is remote code, which may compute anything; whence opens only the "
            f"architectures that come with transformers"
        )
    family = family_of(model.config.model_type)
    if getattr(model.config, "add_cross_attention", False):
        raise WhenceError("models with cross-attention are not supported; expected an encoder or a decoder")
    opened = Opened(model, tokenizer, family, _task_of(model), name)
    for block in opened.blocks:  # a modified model fails here, by name, and not in the middle of a pass
        for path in (family.output, family.norm1, family.norm2, family.ffn_in, family.ffn_out):
            block.part(path)
    return opened


def _task_of(model: transformers.PreTrainedModel) -> str:
    """From the class name, or that of an ancestor (a user's subclass)."""
    for cls in type(model).__mro__:
        if not cls.__module__.startswith("transformers.models."):
            continue
        for task, (_, endings) in TASKS.items():
            if cls.__name__.endswith(endings) and not cls.__name__.endswith("PreTrainedModel"):
                return task
        break
    heads = ", ".join(ending for _, endings in TASKS.values() for ending in endings)
    raise WhenceError(f"{type(model).__name__} has a head that whence does not know; expected one of *{heads}")


def _name(model: transformers.PreTrainedModel) -> str:
    return getattr(model, "name_or_path", "") or type(model).__name__


@lru_cache(maxsize=2)
def _load_once(request: Request, _stamp: str) -> Opened:
    return _load(request, None)


def _load(request: Request, tokenizer: Any | None) -> Opened:
    opened = _opened(*load(request, tokenizer), request.name)
    return replace(opened, pooling=pooling(request)) if opened.task == "encoder" else opened
