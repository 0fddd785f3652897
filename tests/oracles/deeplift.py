"""DeepLift's rules as numbers that carry their own difference: a Llama-like block, operation by operation.

Each number knows what it is in both passes and the difference that is propagated, which need not be the real one: the
map from differences to differences is linear, and any direction shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Pair(NamedTuple):
    now: Tensor
    then: Tensor
    d: Tensor

    def linear(self, module: Any) -> Pair:
        return Pair(module(self.now), module(self.then), self.d @ module.weight.T)

    def each(self, f: Callable[[Tensor], Tensor]) -> Pair:
        """The rescale rule."""
        a, b = f(self.now), f(self.then)
        return Pair(a, b, (a - b) / (self.now - self.then) * self.d)

    def same(self, f: Callable[[Tensor], Tensor]) -> Pair:
        """A linear map without a constant."""
        return Pair(f(self.now), f(self.then), f(self.d))

    def plus(self, other: Pair) -> Pair:
        return Pair(self.now + other.now, self.then + other.then, self.d + other.d)

    def times(self, other: Pair, by: Callable[[Tensor, Tensor], Tensor] = torch.mul) -> Pair:
        """The product rule, of any product."""
        middle = [(each.now + each.then) / 2 for each in (self, other)]
        return Pair(by(self.now, other.now), by(self.then, other.then), by(self.d, middle[1]) + by(middle[0], other.d))

    def rms(self, module: Any) -> Pair:
        """t times 1 / sqrt(mean t² + ε), by the product rule twice and the rescale rule."""
        square = self.times(self).same(lambda t: t.mean(-1, keepdim=True))
        return self.times(square.each(lambda v: (v + module.variance_epsilon).rsqrt())).same(
            lambda t: t * module.weight
        )

    def softmax(self, seen: Tensor) -> Pair:
        """Δα = L (Δs − Δ log Σ exp s), L the logarithmic mean, row by row; no row gains or loses."""
        a, b = (t.masked_fill(~seen, -torch.inf).softmax(-1) for t in (self.now, self.then))
        d = torch.zeros_like(a)
        for h, i in torch.cartesian_prod(*map(torch.arange, a.shape[:2])).tolist():
            visible = seen[i]
            p, q, ds = a[h, i, visible], b[h, i, visible], self.d[h, i, visible]
            mean = torch.where(p == q, p, (p - q) / (p.log() - q.log()))
            d[h, i, visible] = mean * (ds - (mean * ds).sum() / mean.sum())
        return Pair(a, b, d)


def llama_block(module: Any, x: Pair, cos: Tensor, sin: Tensor) -> Pair:
    """One decoder layer of LlamaModel, on [n, d]."""
    attention, mlp, n = module.self_attn, module.mlp, len(x.now)

    def heads(t: Tensor) -> Tensor:
        return t.view(n, -1, attention.head_dim).transpose(0, 1)

    def turned(t: Tensor) -> Tensor:
        a, b = t.chunk(2, -1)
        return t * cos + torch.cat([-b, a], -1) * sin

    def shared(t: Tensor) -> Tensor:
        return t.repeat_interleave(attention.num_key_value_groups, 0)

    h = x.rms(module.input_layernorm)
    q, k, v = (h.linear(p).same(heads) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
    q, k, v = q.same(turned), k.same(turned).same(shared), v.same(shared)
    scores = q.times(k, lambda a, b: a @ b.mT).same(lambda t: t * attention.scaling)
    alpha = scores.softmax(torch.ones(n, n).tril().bool())
    mixed = alpha.times(v, torch.matmul).same(lambda t: t.transpose(0, 1).flatten(1))
    u = x.plus(mixed.linear(attention.o_proj))
    h = u.rms(module.post_attention_layernorm)
    return u.plus(h.linear(mlp.gate_proj).each(mlp.act_fn).times(h.linear(mlp.up_proj)).linear(mlp.down_proj))
