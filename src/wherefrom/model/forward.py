"""A model's own forward pass on a batch: what it is given, and what it gives under transformers' names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from wherefrom.errors import UnsupportedModel
from wherefrom.model.known_padding import known
from wherefrom.model.later import sent
from wherefrom.model.sentences import Batch
from wherefrom.model.sound import FEATURES, features_of
from wherefrom.model.two_streams import streams_of, taken
from wherefrom.model.undo import borrowed, hook, keeping_written
from wherefrom.typecheck import kind_of

if TYPE_CHECKING:
    from wherefrom.model.model import Model


def forward(opened: Model, batch: Batch) -> Any:
    """The output; where the batch says so, with other tokens' embeddings in the place of some."""
    if batch.embedded is None:
        return _run_once(opened, batch)
    embedded, used = batch.embedded, False
    changes = [(batch.ids, embedded), (batch.ids.T, embedded.T)]  # XLNet: token by token
    if opened.two_streams:
        streams = streams_of(batch)
        both = [
            [taken(t, places, opened.pad_id or 0) for t in changes[0]] for places in (streams.source, streams.target)
        ]
        changes = [(ids, instead) for ids, instead in both]

    def stands_in(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal used
        instead = _in_place(args[0].cpu(), changes) if args else None
        if instead is None:
            return None  # GPT-2 embeds its token types by the table of its words
        used = True
        return (instead.to(args[0].device), *args[1:]), kwargs

    def run() -> Any:
        for module in opened.embedders:
            hook(module, stands_in, before=True)
        return _run_once(opened, batch)

    found = borrowed(run)
    if not used:
        raise UnsupportedModel(f"{opened.name} does not embed the tokens it is given; wherefrom cannot replace any")
    return found


def _run_once(opened: Model, batch: Batch) -> Any:
    if not opened.written_on:
        return _run(opened, batch)

    def run() -> Any:
        keeping_written(opened.written_on)
        return _run(opened, batch)

    return borrowed(run)


def _run(opened: Model, batch: Batch) -> Any:
    with known(None if opened.two_streams else batch.padded):  # each stream has a mask of its own
        return (_two_streams if opened.two_streams else _forward)(opened, batch)


def _in_place(ids: Tensor, changes: list[tuple[Tensor, Tensor]]) -> Tensor | None:
    """What is embedded in the place of tokens; None where these are not the batch's."""
    for given, instead in changes:
        if torch.equal(ids, given):
            return instead
    given, instead = changes[0]
    n = given.shape[1]
    if ids.ndim == 2 and torch.equal(ids[:, :n], given):  # Longformer: padded to its window
        return torch.cat([instead, ids[:, n:]], 1)
    return None


def _forward(opened: Model, batch: Batch) -> Any:
    if opened.images:
        return _seen(opened, batch)
    accepted = taken_by(opened.model.forward)
    own = opened.model is opened.pretrained
    inputs: dict[str, Any] = {"input_ids": batch.ids}
    if own or "attention_mask" in accepted:
        inputs["attention_mask"] = batch.attention_mask
    if batch.types is not None and "token_type_ids" in accepted:
        more = len(getattr(opened.config, "type_vocab_sizes", ())) - 1  # TAPAS: segment, column, row, … of each token
        inputs["token_type_ids"] = batch.types if more < 0 else nn.functional.pad(batch.types[..., None], (0, more))
    if "use_cache" in accepted:
        inputs["use_cache"] = False
    tensors = {k: sent(v, opened.device) if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    return _as_output(opened.model(**tensors, **({"return_dict": True} if own else {})))


def taken_by(function: Callable[..., Any]) -> frozenset[str]:
    """The names of what a function takes."""
    return _parameters(getattr(function, "__func__", function))  # which methods of all modules of a class share


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _two_streams(opened: Model, batch: Batch) -> Any:
    """The output of an encoder with a decoder, its logits on the axis that both share: 0 at the source."""
    streams = streams_of(batch)
    given = {"input_ids": (batch.ids, streams.source), "decoder_input_ids": (batch.ids, streams.target)}
    seen = {"attention_mask": streams.source, "decoder_attention_mask": streams.target}
    inputs = {name: taken(ids, places, opened.pad_id or 0) for name, (ids, places) in given.items()}
    inputs |= {name: taken(batch.attention_mask, places) for name, places in seen.items()}
    if opened.hears:
        features = features_of(batch.sentences).to(opened.pretrained.dtype)
        inputs = {FEATURES: features, "decoder_input_ids": inputs["decoder_input_ids"]}
    tensors = {name: sent(t, opened.device) for name, t in inputs.items()}
    found = opened.model(**tensors, use_cache=False, return_dict=True)
    return ModelOutput(logits=streams.joint(target=found.logits))


def _seen(opened: Model, batch: Batch) -> Any:
    """The output on pictures, with positions in between where these are not as large as the model's own."""
    assert batch.pixels is not None
    side = opened.sizes.image_size
    usual = [side, side] if isinstance(side, int) else list(side)
    more = {} if list(batch.pixels.shape[2:]) == usual else {"interpolate_pos_encoding": True}
    return _as_output(opened.model(pixel_values=batch.pixels.to(opened.device, opened.pretrained.dtype), **more))


def _as_output(found: Any) -> Any:
    """What a model returned under transformers' names: bare logits, alone or first of a tuple, get theirs."""
    if isinstance(found, ModelOutput):
        return found
    if isinstance(found, Mapping):
        if "logits" not in found:
            names = ", ".join(map(str, found)) or "nothing"
            raise UnsupportedModel(f"the model returned {names}; expected an output with logits among them")
        found = found["logits"]
    elif isinstance(found, tuple | list):
        found = next(iter(found), None)
    logits = getattr(found, "logits", found)
    if not isinstance(logits, torch.Tensor):
        raise UnsupportedModel(f"the model returned {kind_of(found)}; expected logits, or an output that has them")
    return ModelOutput(logits=logits)
