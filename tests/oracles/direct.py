"""Every block-wise method by its definition, in any block: from the model's own modules, run again, and loops.

Taken from the library are a block's input, its attention weights and values, and the row that says which module is
which; norms, W_O, the FFN, gates, experts and scales are the model's own code, called. A norm as a linear map whose
scale is frozen at w needs no weights: N(w) − N(0) = c(w) ⊙ γ / s(w), so it takes t to c(t) ⊙ (N(w) − N(0)) / c(w).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from wherefrom.model import LayerTrace
from wherefrom.model.parts import Block

LARGE = 1e8  # beside which ε is nothing


class Norm:
    """What a norm's module shows of itself."""

    def __init__(self, module: nn.Module, w: Tensor) -> None:
        self.module = module
        self.zero = module(torch.zeros_like(w))
        self.centres = bool((module(w + 1) - module(w)).abs().max() < 1e-6 * module(w).abs().max())
        self.slope = (module(w) - self.zero) / self.centred(w)  # γ / s(w), token by token
        rms = self.centred(w).square().mean(-1, keepdim=True).sqrt()
        gamma = (module(LARGE * w) - self.zero) * rms / self.centred(w)
        self.scale = (gamma / self.slope).mean(-1, keepdim=True)

    def centred(self, t: Tensor) -> Tensor:
        return t - t.mean(-1, keepdim=True) if self.centres else t

    def of_part(self, t: Tensor, i: int) -> Tensor:
        """A part of what the norm reads at token i, through it."""
        return self.centred(t) * self.slope[i]


class Direct:
    """One sentence in one block, inside a pass of the model's own."""

    def __init__(
        self, layer: LayerTrace, call: Callable[..., Tensor], last_read: Tensor | None, closing: nn.Module | None
    ) -> None:
        self.block: Block = layer.block
        self.call, self.w, self.closing = call, last_read, closing
        self.x, self.alpha = layer.raw["x"][0], layer.raw["attention"][0]
        shared = layer.raw["value"][0]  # once for the heads that share it
        self.value = shared.repeat_interleave(len(self.alpha) // len(shared), 0)
        self.n, self.heads = len(self.x), len(self.alpha)
        self.o = call()[0]
        row = self.block.family
        self.paths = row.attention, row.ffn
        self.multiplier = float(getattr(self.block.module, row.multiplier)) if row.multiplier else 1.0
        self.w_o = self.block.part(row.attention.output)
        self.given = self.w_o(self.mixed())
        self.after = self.norm(row.attention.after, self.given)
        branch = self.given if self.after is None else self.after.module(self.given)
        self.u = self.x + self.multiplier * branch

    def norm(self, path: str, w: Tensor) -> Norm | None:
        found = self.block.part(path) if path else None
        return None if found is None or isinstance(found, nn.Identity) else Norm(found, w)

    def mixed(self, without: int | None = None) -> Tensor:
        """What enters W_O, with the value of one token left out: [n, H·d_h]."""
        value = self.value.clone()
        if without is not None:
            value[:, without] = 0
        return torch.cat([alpha @ v for alpha, v in zip(self.alpha, value, strict=True)], -1)

    @cache  # noqa: B019
    def t(self, i: int, j: int, residual: bool = True) -> Tensor:
        """t_ij: what token j gives to token i."""
        entering = torch.cat([self.alpha[h, i, j] * self.value[h, j] for h in range(self.heads)])
        found = self.w_o(entering[None])[0] - self.w_o(torch.zeros_like(entering)[None])[0]
        found = self.multiplier * (found if self.after is None else self.after.of_part(found, i))
        return found + self.x[i] if residual and i == j else found

    def reached(self, i: int, j: int) -> Tensor:
        """t_ij as the stream has it when it is read next: in a parallel block the FFN's part is the token's own."""
        own = self.o[i] - self.u[i] if self.block.family.parallel and i == j else 0
        return self.t(i, j) + own

    def next_module(self) -> nn.Module | None:
        reader = self.block.reader
        if isinstance(reader, Block):
            path = reader.family.attention.norm
            return reader.part(path) if path else None
        return self.closing

    def first_norm(self) -> Norm | None:
        attention, ffn = self.paths
        if self.block.family.parallel:
            module = self.next_module()
            return None if module is None else Norm(module, self.o)
        return self.norm(attention.post or ffn.norm, self.u)

    def table(self, entry: Callable[[int, int], Tensor]) -> Tensor:
        return torch.stack([torch.stack([entry(i, j) for j in range(self.n)]) for i in range(self.n)])

    # The maps -----------------------------------------------------------------------------------------------

    def attention(self) -> Tensor:
        return self.table(lambda i, j: self.alpha[:, i, j].mean())

    def norm_(self) -> Tensor:
        return self.table(lambda i, j: self.t(i, j, residual=False).norm())

    def norm_residual(self) -> Tensor:
        return self.table(lambda i, j: self.t(i, j).norm())

    def norm_residual_ln(self) -> Tensor:
        first = self.first_norm()
        if first is None:
            return self.norm_residual()
        return self.table(lambda i, j: first.of_part(self.reached(i, j), i).norm())

    def globenc(self) -> Tensor:
        attention, ffn = self.paths
        if attention.post and ffn.post:
            assert self.w is not None
            first, last = Norm(self.block.part(attention.post), self.u), Norm(self.block.part(ffn.post), self.w)
            return self.table(lambda i, j: last.of_part(first.of_part(self.t(i, j), i), i).norm())
        module = self.block.part(ffn.norm) if ffn.norm else self.next_module()
        module = module or self.block.part(ffn.after or attention.norm)
        norm = Norm(module, self.o)
        return self.table(lambda i, j: (norm.centred(self.reached(i, j)) / norm.scale[i]).norm())

    def alti(self, through: Norm | None, y: Tensor, parts: Callable[[int, int], Tensor]) -> Tensor:
        def near(i: int, j: int) -> Tensor:
            part = parts(i, j) if through is None else through.of_part(parts(i, j), i)
            return (y[i].abs().sum() - (y[i] - part).abs().sum()).clamp(min=0)

        found = self.table(near)
        return found / found.sum(-1, keepdim=True)

    def alti_default(self) -> Tensor:
        attention, _ = self.paths
        if attention.post:
            return self.alti_attention()
        return self.alti(None, self.o if self.block.family.parallel else self.u, self.reached)

    def alti_attention(self) -> Tensor:
        first, read = self.first_norm(), self.o if self.block.family.parallel else self.u
        return self.alti(first, read if first is None else first.module(read), self.reached)

    def value_zeroing(self) -> Tensor:
        changed = [self.call(mixed=self.mixed(without=j))[0] for j in range(self.n)]
        found = self.table(lambda i, j: 1 - torch.cosine_similarity(self.o[i], changed[j][i], dim=0))
        return found / found.sum(-1, keepdim=True)

    def hta(self) -> Tensor:
        with torch.enable_grad():
            x = self.x.detach()[None].requires_grad_()
            o = self.call(x=x)
            square = torch.zeros(self.n, self.n, dtype=x.dtype)
            for i in range(self.n):
                for c in range(o.shape[-1]):
                    (gradient,) = torch.autograd.grad(o[0, i, c], x, retain_graph=True)
                    square[i] += gradient[0].square().sum(-1)
        return square.sqrt()


MAPS: dict[str, Callable[[Direct], Tensor]] = {
    "attention": Direct.attention,
    "norm": Direct.norm_,
    "norm-residual": Direct.norm_residual,
    "norm-residual-ln": Direct.norm_residual_ln,
    "globenc": Direct.globenc,
    "alti": Direct.alti_default,
    "alti(at=attention)": Direct.alti_attention,
    "value-zeroing": Direct.value_zeroing,
    "hta": Direct.hta,
}


def caller(block: Block, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Tensor]:
    """The block's own module once more, on another input or with something else entering W_O."""

    def call(x: Tensor | None = None, mixed: Tensor | None = None) -> Tensor:
        given, named = list(args), dict(kwargs)
        if x is not None and given:
            given[0] = x
        elif x is not None:
            named["hidden_states"] = x
        handle = None
        if mixed is not None:
            output = block.part(block.family.attention.output)
            handle = output.register_forward_pre_hook(lambda _, entered: (mixed.reshape(entered[0].shape),))
        try:
            found = block.module(*given, **named)
        finally:
            if handle is not None:
                handle.remove()
        return found[0] if isinstance(found, tuple | list) else found

    return call
