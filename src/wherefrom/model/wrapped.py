"""Models in a wrapping: the transformers model inside, or why it cannot be explained from there.

    torch.compile(model)           what was compiled, run as it is written
    DataParallel and the like      the module inside
    peft's PeftModel               the model that carries the adapters
    SentenceTransformer            its encoder, its tokenizer, how it pools and what comes after that
    CrossEncoder                   its classifier and its tokenizer

Packages are known by the names of their classes, so that none of them has to be there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from wherefrom.errors import UnsupportedModel, warn
from wherefrom.model.loading import POOLINGS

INSIDE = {  # by the class's full name, where the model inside is
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
}
REFUSED = {
    "torch.jit._script.ScriptModule": "a scripted or traced module, whose parts cannot be followed; pass the module "
    "that was scripted",
    "torch.fx.graph_module.GraphModule": "a graph without the modules that it was made of; pass the module that was "
    "traced",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": "a model whose weights are spread "
    "over processes; gather them and pass the whole model",
}
FORWARD_OF_ITS_OWN = {"XLORA", "POLY", "CPT"}  # adapters that do something in PeftModel's own forward


@dataclass(frozen=True)
class Unwrapped:
    """The model inside, and what its wrapping says of it."""

    model: Any
    tokenizer: Any | None = None
    pooling: str | None = None  # the readout position of a sentence embedding
    then: tuple[nn.Module, ...] = ()  # what a sentence embedding goes through after pooling
    adapters: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The checkpoint's, or the class's, and the adapters'."""
        own = getattr(self.model, "name_or_path", "") or type(self.model).__name__
        return " + ".join([own, *self.adapters])


def unwrapped(model: Any) -> Unwrapped:
    """What is inside of all wrappings."""
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(model).__mro__}
    if refused := names & REFUSED.keys():
        raise UnsupportedModel(f"{type(model).__name__} is {REFUSED[refused.pop()]}")
    if known := names & INSIDE.keys():
        return unwrapped(getattr(model, INSIDE[known.pop()]))
    if _is(model, "peft", "PeftModel") or _is(model, "peft", "PeftMixedModel"):
        inside = unwrapped(_adapted(model))
        return replace(inside, adapters=(*inside.adapters, *_active(model)))
    if _is(model, "sentence_transformers", "CrossEncoder"):
        return replace(unwrapped(model.model), tokenizer=model.tokenizer)
    if _is(model, "sentence_transformers", "SentenceTransformer"):
        return _embedder(model)
    return Unwrapped(model)


def _is(model: Any, package: str, name: str) -> bool:
    """Whether it is an object of this class of this package, or of one derived from it."""
    return any(cls.__name__ == name and cls.__module__.split(".")[0] == package for cls in type(model).__mro__)


def _active(model: Any) -> list[str]:
    found = model.active_adapters
    return list(found() if callable(found) else found)


def _adapted(model: Any) -> Any:
    """The model with the adapters in it; those that work from outside of it are refused."""
    for name in _active(model):
        config = model.peft_config[name]
        kind = str(getattr(config.peft_type, "value", config.peft_type))
        if getattr(config, "is_prompt_learning", False):
            raise UnsupportedModel(
                f"the adapter '{name}' ({kind}) puts vectors of its own in front of the text, which are no tokens; "
                f"wherefrom explains adapters that change weights (LoRA and its kin)"
            )
        if kind in FORWARD_OF_ITS_OWN or getattr(config, "alora_invocation_tokens", None):
            raise UnsupportedModel(
                f"the adapter '{name}' ({kind}) depends on more than the weights; merge it into the model "
                f"(merge_and_unload) where that is possible, or use LoRA"
            )
    return model.base_model.model


def _embedder(model: Any) -> Unwrapped:
    """A sentence embedder: an encoder of transformers, a pooling, and what follows."""
    encoder, *rest = list(model)
    inside = getattr(encoder, "auto_model", None)
    if inside is None:
        raise UnsupportedModel(f"{type(encoder).__name__} holds no transformers model; expected one that reads text")
    poolings = [module for module in rest if type(module).__name__ == "Pooling"]
    if len(poolings) != 1 or rest[0] is not poolings[0]:
        raise UnsupportedModel("the sentence embedder has no single pooling after its encoder; pass the encoder alone")
    mode = getattr(poolings[0], "pooling_mode", None) or poolings[0].get_pooling_mode_str()  # in older releases
    modes = mode.split("+") if isinstance(mode, str) else list(mode)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise UnsupportedModel(
            f"the sentence embedder pools its tokens by {' and '.join(modes)}; wherefrom knows the first token, the "
            f"mean and the last token. Pass its encoder alone"
        )
    if getattr(model, "default_prompt_name", None):
        warn("the sentence embedder puts a prompt before each text, and wherefrom does not; write it into the text")
    found = unwrapped(inside)
    return replace(found, tokenizer=model.tokenizer, pooling=POOLINGS[modes[0]], then=tuple(rest[1:]))
