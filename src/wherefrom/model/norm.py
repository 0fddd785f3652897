"""Norms by what they do: LayerNorm and RMS norm, whatever their class is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wherefrom.errors import UnsupportedModel
from wherefrom.model.linear import device_of, present, promote
from wherefrom.model.undo import outside_inference_mode, without_gradients

SAME = 1e-2  # how far a norm's output may lie from the formula's, as a share: half precision rounds to three digits

SOME = 16  # a width to try norms on that have neither weights nor a width of their own (Llama 4, nanochat)


class Norm(NamedTuple):
    """`LN(t) = (t − mean t) / s(t) ⊙ γ + β`, in the pieces that the decompositions need; RMS norms take no mean off."""

    gamma: Tensor
    beta: Tensor
    eps: float
    centres: bool = True

    def centred(self, t: Tensor) -> Tensor:
        return t - t.mean(-1, keepdim=True) if self.centres else t

    def scale(self, t: Tensor) -> Tensor:
        """`s(t) = sqrt(var(t) + ε)` with the biased variance: [..., d] -> [..., 1]."""
        if self.centres and not torch.is_grad_enabled():  # of what layer_norm says beside its result there is no graph
            return torch.native_layer_norm(t, t.shape[-1:], None, None, self.eps)[2].reciprocal()
        # Twenty times as fast as torch.var, which takes its sums one by one.
        return (self.centred(t).square().mean(-1, keepdim=True) + self.eps).sqrt()

    def linear(self, t: Tensor) -> Tensor:
        """`(t − mean t) ⊙ γ`: what LN does to a part of its input, before the division by s of the whole."""
        return self.centred(t) * self.gamma

    def times(self, factor: Tensor | float) -> Norm:
        """The norm with its output multiplied."""
        if isinstance(factor, float) and factor == 1:
            return self
        return self._replace(gamma=self.gamma * factor, beta=self.beta * factor)

    def __call__(self, t: Tensor) -> Tensor:
        if self.centres and self.gamma.shape == t.shape[-1:] and self.gamma.dtype == t.dtype:
            return nn.functional.layer_norm(t, t.shape[-1:], self.gamma, self.beta, self.eps)
        return self.linear(t) / self.scale(t) + self.beta

    def to(self, device: torch.device) -> Norm:
        return self._replace(gamma=self.gamma.to(device), beta=self.beta.to(device))

    def forgets(self, t: Tensor) -> Tensor:
        """`∂N(t)/∂t = (I − pᵀp) Γ / s`: p, over √d, is t̂ and, where the mean comes off, the constant vector."""
        unit = self.centred(t) / self.scale(t)
        p = [torch.ones_like(t), unit] if self.centres else [unit]
        return torch.stack(p, -2).div_(t.shape[-1] ** 0.5)  # [..., d] -> [..., 2 or 1, d]


def norm_of(module: nn.Module, width: int = 0) -> Norm | None:
    """A norm by what it does: which of {centred, not} × {γ = weight, 1 + weight} gives its output on four vectors.

    None for a module that hands its input on. `width` is for those that do not say themselves how wide they are.
    """
    return None if isinstance(module, nn.Identity) else outside_inference_mode(lambda: _known(module, width))


def _known(module: nn.Module, width: int) -> Norm:
    probe, (weight, bias) = _probe_of(module, width), present(module, lambda: _weights(module))
    given = promote(without_gradients(lambda: module(probe)))
    probe = promote(probe).to(given.device)
    gamma = torch.ones_like(given[0]) if weight is None else promote(weight).to(given.device)
    beta = torch.zeros_like(gamma) if bias is None else promote(bias).to(given.device)
    for centres in (True, False):
        for gain in (gamma, 1 + gamma):
            found = Norm(gain.clone(), beta.clone(), _epsilon(module, centres, len(gamma)), centres)
            if bool(((found(probe) - given).abs() <= SAME * given.abs().amax()).all()):
                return found
    raise UnsupportedModel(
        f"{type(module).__name__} is no norm that wherefrom knows (LayerNorm or RMS norm, by its weight or 1 + weight)"
    )


def norms_of(model: nn.Module) -> Iterator[tuple[nn.Module, Norm | UnsupportedModel]]:
    """Every norm of a model: of the embeddings, the blocks, on queries and keys, of the head.

    One of another kind comes with the error that says so: towers for images and sounds have batch norms, and norms of
    channels, which no text reaches.
    """
    for module in model.modules():
        if "norm" in type(module).__name__.lower() and not [*module.children()]:
            try:
                found = norm_of(module, SOME)
            except UnsupportedModel as error:
                yield module, error
                continue
            except Exception as error:  # whatever it makes of vectors
                yield module, UnsupportedModel(f"{type(module).__name__} is no norm that wherefrom knows: {error}")
                continue
            if found is not None:
                known = any(isinstance(getattr(module, name, None), Tensor) for name in ("weight", "bias"))
                yield module, found if known else found._replace(gamma=found.gamma[:1], beta=found.beta[:1])


def _weights(module: nn.Module) -> list[Tensor | None]:
    """A norm's weight and bias, where it has them."""
    found = [getattr(module, name, None) for name in ("weight", "bias")]
    return [each.detach() if isinstance(each, Tensor) else None for each in found]


def _probe_of(module: nn.Module, width: int) -> Tensor:
    """Four vectors, given where and as the norm takes them."""
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor):
        shape, dtype = tuple(weight.shape), weight.dtype  # of one axis, or by head and component (Command R+)
    else:
        shape, dtype = (_size(module, width),), torch.float32
    probe = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    return probe.to(device_of(module), dtype) * 2 + 0.5


def _size(module: nn.Module, width: int) -> int:
    shape: Any = getattr(module, "normalized_shape", width or None)
    if shape is None:
        raise UnsupportedModel(
            f"{type(module).__name__} is no norm that wherefrom knows: it does not say how wide it is"
        )
    return int(shape[-1]) if isinstance(shape, tuple | list | torch.Size) else int(shape)


def _epsilon(module: nn.Module, centres: bool, size: int) -> float:
    """Under whichever name it has; where it has none, measured on a vector so short that it matters."""
    for name in ("eps", "variance_epsilon", "epsilon", "layer_norm_eps"):
        if isinstance(value := getattr(module, name, None), float | int):
            return float(value)
    probe = 3e-3 * torch.randn(size, generator=torch.Generator().manual_seed(1))
    centred = probe - probe.mean() if centres else probe
    scale = float((centred.square().sum() / without_gradients(lambda: module(probe)).square().sum()).sqrt())
    return float(f"{max(scale**2 - float(centred.square().mean()), 0.0):.1e}")
