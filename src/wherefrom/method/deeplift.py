r"""DeepLift: every operation replaced by the linear map of its differences from a baseline.

    score_i  =  Σ_k m_ik (x_ik − x'_ik),        Σ_i score_i  =  y(x) − y(x')

    y = σ(x), elementwise     Δy = (σ(x) − σ(x')) / (x − x') Δx                           the rescale rule
    y = a b                   Δy = ½(a + a') Δb + ½(b + b') Δa                            products of two
    softmax                   Δα = L(α, α') Δ log α, Δ log α = Δs − Δ log Σ exp s         L: the logarithmic mean
    LayerNorm                 c / sqrt(mean c² + ε), c centred                            likewise

Each row is exact for its operation, so the scores add up to the change of the output; what rounding leaves is `delta`.
The head that reads the last block's output is averaged along the straight way from baseline to input (Gauss–Legendre,
by more points where it has kinks), which for a layer, an activation and a layer is the rescale rule. Baselines as in
`integrated-gradients`; with `layer=l` the differences of block l's input are explained.

captum's DeepLift has rules for activations that are modules alone; on a BERT it puts plain gradients in the place of
softmax, products, LayerNorm and GELU and misses the change of the output by more than a fifth of it (the test
`test_deeplift_adds_up_where_captums_does_not` measures it). Hence the rules are written out here.

Shrikumar et al. (2017), Learning Important Features Through Propagating Activation Differences.
https://arxiv.org/abs/1704.02685
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wherefrom.errors import InvalidOption, Unsuited
from wherefrom.method.base import Of, Scores, method
from wherefrom.method.baseline import Baseline, check_layer, rerun, swapped
from wherefrom.method.citations import SHRIKUMAR_2017
from wherefrom.method.needs import PLAIN_BLOCKS
from wherefrom.method.quadrature import averaged
from wherefrom.model.parts import Norm
from wherefrom.work import passes

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace, OutputTrace

HEAD_STEPS = 16  # quadrature points for the head
LARGE = 0.05  # a miss, as a part of the output and its change, that is refused


@method(
    "deeplift",
    symbols=("DL",),
    idea="differences from a baseline",
    paper=SHRIKUMAR_2017,
    needs={"attention", "values", "output-projection", "block-input", "both-norms", "baseline", *PLAIN_BLOCKS},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil", "adds-up"},
    cost=passes(7, 1.2),
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
def deeplift(output: OutputTrace, *, baseline: Baseline = "auto", of: Of = "logit", layer: int | None = None) -> Scores:
    """Differences from a baseline, propagated back by the rescale rule."""
    check_layer(output, layer)
    if baseline == "zero":
        raise InvalidOption(
            "deeplift compares two sentences, and 'zero' is not one. Choose mask, pad, unknown or token ids"
        )
    start = layer or 0
    real, base = (trace.layers for trace in swapped(output, baseline))
    h, h0 = (layers[-1].raw["output"] for layers in (real, base))
    multiplier, change, largest = _head(output, of, h, h0)
    for now, then in zip(reversed(real[start:]), reversed(base[start:]), strict=True):
        multiplier = through_block(now, then, multiplier)
    scores = (multiplier * (real[start].x - base[start].x)).sum(-1)
    scores, change, largest = (each.to(output.mask.device) for each in (scores, change, largest))
    scores = scores * output.mask
    delta = scores.sum(-1) - change
    excess = delta.abs() - LARGE * (largest + change.abs())
    worst = int(excess.argmax())
    if not bool(excess[worst] <= 0):  # NaN too
        raise Unsuited(
            f"deeplift misses the change of the output ({float(change[worst]):.3g}) by "
            f"{float(delta[worst].abs()):.3g}, so its scores cannot be trusted here; use a float64 model, another "
            f"baseline, or integrated-gradients"
        )
    return Scores(scores, delta=delta)


def through_block(now: LayerTrace, then: LayerTrace, multiplier: Tensor) -> Tensor:
    """From multipliers on a block's output to those on its input: the transpose of the block's difference map."""
    with torch.enable_grad():
        d = torch.zeros_like(now.x, requires_grad=True)  # stands for Δx; the map below is linear in it
        (found,) = torch.autograd.grad(difference(now, then, d), d, multiplier.to(d.device))
    return found


def difference(now: LayerTrace, then: LayerTrace, dx: Tensor) -> Tensor:
    """The block as a linear map of differences: difference(now, then, x − x') is o − o'."""
    block = now.block
    source = _norm(block.norm1, now.x, then.x, dx) if block.norm_first else dx
    dq, dk, dv = (torch.einsum("bnd,hdk->bhnk", source, w) for w in (block.w_q, block.w_k, block.w_v))
    ds = (dq @ _middle(now.key, then.key).mT + _middle(now.query, then.query) @ dk.mT) * now.scaling
    da = _softmax(now, then, ds)
    dz = da @ _middle(now.value, then.value) + _middle(now.attention, then.attention) @ dv
    du = dx + torch.einsum("bhnk,hkd->bnd", dz, block.w_o)
    if block.norm_first:
        dy = _norm(block.norm2, now.u, then.u, du)
        y, y0 = block.norm2(now.u), block.norm2(then.u)
    else:
        dy = _norm(block.norm1, now.u, then.u, du)
        y, y0 = block.norm1(now.u), block.norm1(then.u)
    pre, pre0 = block.ffn_in(y), block.ffn_in(y0)
    df = (_slope(block.activation, pre, pre0) * (dy @ block.ffn_in.weight)) @ block.ffn_out.weight
    return du + df if block.norm_first else _norm(block.norm2, now.w, then.w, dy + df)


def _middle(a: Tensor, b: Tensor) -> Tensor:
    return (a + b) / 2


def _slope(f: Any, x: Tensor, x0: Tensor) -> Tensor:
    """(f(x) − f(x')) / (x − x'), and f' where the two all but coincide.

    In float64: of two activations that differ in their last digits, float32 leaves nothing to divide.
    """
    a, b = x.double(), x0.double()
    gap = a - b
    close = gap.abs() < 1e-7
    quotient: Tensor = (f(a) - f(b)) / torch.where(close, 1.0, gap)
    if bool(close.any()):
        middle = _middle(a, b)
        quotient = torch.where(close, torch.func.jvp(f, (middle,), (torch.ones_like(middle),))[1], quotient)
    return quotient.to(x.dtype)


def _softmax(now: LayerTrace, then: LayerTrace, ds: Tensor) -> Tensor:
    """Δα from Δs: Δα = L Δ log α with L the logarithmic mean of α and α', and Σ Δα = 0 gives the normaliser's part.

    The same through exp and a division is exact too, but its two parts grow like exp(Δs) and cancel.
    """
    logs = []
    for layer in (now, then):
        s = layer.query @ layer.key.mT * layer.scaling
        logs.append(s.masked_fill(layer.attention == 0, -torch.inf).log_softmax(-1))
    seen = (now.attention > 0) & (then.attention > 0)
    gap = torch.where(seen, logs[0] - logs[1], 0.0).abs()
    high = torch.where(seen, torch.maximum(*logs).exp(), 0.0)
    mean = high * torch.where(gap > 1e-12, -torch.expm1(-gap) / gap.clamp(min=1e-12), 1.0)
    total = mean.sum(-1, keepdim=True).clamp(min=torch.finfo(mean.dtype).tiny)  # 0 in rows that see nothing
    return mean * (ds - (mean * ds).sum(-1, keepdim=True) / total)


def _norm(norm: Norm, t: Tensor, t0: Tensor, dt: Tensor) -> Tensor:
    """Δ LN(t) from Δt: centred, over the root of the variance, times γ."""
    c, c0, dc = (norm.centred(x) for x in (t, t0, dt))
    root, root0 = norm.scale(t), norm.scale(t0)
    dv = ((c + c0) * dc).mean(-1, keepdim=True)
    dr = -dv / (root * root0 * (root + root0))  # 1/a − 1/b over a² − b²
    return (_middle(c, c0) * dr + _middle(1 / root, 1 / root0) * dc) * norm.gamma


def _head(output: OutputTrace, of: str, h: Tensor, h0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The number's mean gradient on the way from h' to h [B, n, d], its change and its largest magnitude there [B]."""
    opened = output.trace.opened
    # A vocabulary's logits at every token are large: one point at a time.
    together = len(h) * (HEAD_STEPS if opened.task == "classification" and opened.stacks else 1)
    average = partial(
        averaged, rerun(output, of, opened.depth), h0, h, output.number(of).detach(), together=together, tolerance=1e-3
    )
    found = average(points=HEAD_STEPS)
    gradient, off = found.gradient, found.missed.abs() > 1e-3 * found.travelled
    if bool(off.any()):  # a head with kinks (ReLU): as many points as it takes, for these sentences alone
        gradient = torch.where(off.to(gradient.device)[:, None, None], average().gradient, gradient)
    return gradient, found.change.to(gradient), found.largest.to(gradient)
