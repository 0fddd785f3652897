r"""DeepLift: every operation replaced by the linear map of its differences from a baseline.

    score_i  =  Σ_k m_ik (x_ik − x'_ik),        Σ_i score_i  =  y(x) − y(x')

    y = σ(x), elementwise     Δy = (σ(x) − σ(x')) / (x − x') Δx                           the rescale rule
    y = a b                   Δy = ½(a + a') Δb + ½(b + b') Δa                            products of two
    softmax                   Δα = L(α, α') Δ log α, Δ log α = Δs − Δ log Σ exp s         L: the logarithmic mean
    norms                     c / sqrt(mean c² + ε), c centred (RMS: not)                 likewise, by the two above
    gated FFN                 φ(g) ⊙ p                                                    likewise
    soft-cap                  c tanh(s / c)                                               likewise
    rotary embedding          the same linear map in both passes

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

from wherefrom.method.base import Of, Scores, method
from wherefrom.method.baseline import Swapped, check_layer, rerun, swapped
from wherefrom.method.citations import SHRIKUMAR_2017
from wherefrom.method.exact_sum import refuse_missed_sum
from wherefrom.method.quadrature import averaged
from wherefrom.model.keys import Side, product_beside, product_of
from wherefrom.model.parts import Block, Norm, derivative
from wherefrom.work import passes

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace, OutputTrace, Trace

HEAD_STEPS = 16  # quadrature points for the head
HEAD_TOLERANCE = 1e-4  # of how far the number travels: what the quadrature of the head may miss


@method(
    "deeplift",
    symbols=("DL",),
    idea="differences from a baseline",
    paper=SHRIKUMAR_2017,
    needs={
        "one-stream",
        "attention",
        "values",
        "output-projection",
        "block-input",
        "linear-values",
        "known-scores",
        "ffn-matrices",
        "baseline",
    },
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil", "adds-up"},
    cost=passes(7, 1.2),
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
def deeplift(output: OutputTrace, *, baseline: Swapped = "auto", of: Of = "auto", layer: int | None = None) -> Scores:
    """Differences from a baseline, propagated back by the rescale rule."""
    check_layer(output, layer)
    take = partial(_taken_back, baseline=baseline, of=of, start=layer or 0)
    if not output.several:
        return take([output])[0]
    return output.together(f"deeplift {baseline} {of} {layer}", take)


def _taken_back(outputs: list[OutputTrace], baseline: Swapped, of: str, start: int) -> list[Scores]:
    """The scores of each of several numbers."""
    first = outputs[0]
    real, base = (trace.layers for trace in _passes(first, baseline))
    h, h0 = (layers[-1].raw["output"] for layers in (real, base))
    heads = [_head(output, of, h, h0) for output in outputs]
    multiplier = torch.stack([head[0] for head in heads])
    for now, then in zip(reversed(real[start:]), reversed(base[start:]), strict=True):
        multiplier = through_block(now, then, multiplier)
    scores = (multiplier * (real[start].x - base[start].x)).sum(-1).to(first.mask.device) * first.mask
    dtype = first.trace.opened.pretrained.dtype
    return [_checked(each, *head[1:], dtype) for each, head in zip(scores, heads, strict=True)]


def _passes(output: OutputTrace, baseline: Swapped) -> tuple[Trace, ...]:
    """On the sentences and on their baselines: once for several numbers."""
    if not output.several:
        return tuple(swapped(output, baseline))
    return output.trace.once(f"swapped {baseline}", lambda _: tuple(swapped(output, baseline)))


def _checked(scores: Tensor, change: Tensor, largest: Tensor, dtype: torch.dtype) -> Scores:
    """The scores [B, n], unless they miss the change of the output, which is rounded like its largest number."""
    change, largest = (each.to(scores.device) for each in (change, largest))
    instead = "use a float64 model, another baseline, or integrated-gradients"
    refuse_missed_sum("deeplift", scores, change, largest, dtype, instead)
    return Scores(scores, delta=scores.sum(-1) - change)


def through_block(now: LayerTrace, then: LayerTrace, multipliers: Tensor) -> Tensor:
    """From multipliers on a block's output to those on its input: the transpose of the block's difference map."""
    with torch.enable_grad():
        d = torch.zeros_like(now.x, requires_grad=True)  # stands for Δx; the map below is linear in it
        made, given = difference(now, then, d), multipliers.to(d.device)
        if len(given) == 1:
            return torch.autograd.grad(made, d, given[0])[0][None]
        (found,) = torch.autograd.grad(made, d, given, is_grads_batched=True)
    return found


def difference(now: LayerTrace, then: LayerTrace, dx: Tensor) -> Tensor:
    """The block as a linear map of differences: difference(now, then, x − x') is o − o'."""
    block = now.block
    given = _attended(now, then, _norm(block.before, now.x, then.x, dx))
    if block.after is not None:
        attended, attended0 = (block.attended(each.attention, each.value) for each in (now, then))
        given = _norm(block.after, attended, attended0, given)
    dy = _norm(block.post, now.u, then.u, dx + given)
    read, read0, d = (now.x, then.x, dx) if block.parallel else (*map(_stream, (now, then)), dy)
    dw = dy + _fed(block, read, read0, d)
    return _norm(block.ffn_post, now.w, then.w, dw)


def _stream(layer: LayerTrace) -> Tensor:
    """y, what goes past the FFN and, normed again in some blocks, into it."""
    return layer.u if layer.block.post is None else layer.block.post(layer.u)


def _attended(now: LayerTrace, then: LayerTrace, source: Tensor) -> Tensor:
    """What attention gives, from differences of what it reads."""
    block, product, product0 = now.block, product_of(now), product_beside(now, then)
    query, query0, key, key0 = (side.given for side in (product.query, product0.query, product.key, product0.key))
    dq, dk = (_turned(*sides, source) for sides in zip(product[:2], product0[:2], strict=True))
    ds = (dq @ _middle(key, key0).mT + _middle(query, query0) @ dk.mT) * product.scaling
    scores = partial(_scores, product.scaling, (query, key), (query0, key0))
    if now.softcap is not None:
        cap = partial(_capped, now.softcap)
        ds = ds * _slope(cap, *scores())
    alpha, alpha0 = now.attention, then.attention
    if bool(((alpha == 0) != (alpha0 == 0)).any()):
        alpha, alpha0 = _restored(alpha, alpha0, *(each if now.softcap is None else cap(each) for each in scores()))
    da, dv = _softmax(alpha, alpha0, ds), torch.einsum("bnd,hdk->bhnk", source, block.w_v)
    dz = da @ _middle(now.value, then.value) + _middle(alpha, alpha0) @ dv
    return torch.einsum("bhnk,hkd->bnd", dz, block.w_o)


def _scores(scaling: float, *pairs: tuple[Tensor, Tensor]) -> list[Tensor]:
    return [(q @ k.mT * scaling).detach() for q, k in pairs]


def _capped(cap: float, scores: Tensor) -> Tensor:
    return cap * torch.tanh(scores / cap)


def _restored(alpha: Tensor, alpha0: Tensor, s: Tensor, s0: Tensor) -> tuple[Tensor, Tensor]:
    """α of both passes, where that of one was too small for the model's precision (float16: below 3e-8) and became 0.

    What positions add to the scores is the same in both, so that log α − log α' = s − s' − c with one c in a row: that
    of the column which both see best.
    """
    (log, log0), seen = (torch.where(a > 0, a, 1.0).log() for a in (alpha, alpha0)), torch.minimum(alpha, alpha0)
    best = seen.argmax(-1, keepdim=True)
    step = (s - s0) - ((s - s0) - (log - log0)).gather(-1, best)  # log α − log α'
    known = seen.gather(-1, best) > 0
    return (
        torch.where((alpha == 0) & (alpha0 > 0) & known, (log0 + step).exp(), alpha),
        torch.where((alpha0 == 0) & (alpha > 0) & known, (log - step).exp(), alpha0),
    )


def _turned(now: Side, then: Side, source: Tensor) -> Tensor:
    """Queries or keys: projected, normed by some models, turned by position, which is linear."""
    d = torch.einsum("bnd,hdk->bhnk", source, now.weight)
    if now.norm is None:
        return now.turned(d)
    if now.late:
        d = now.turned(d)
    d = now.by_head(_norm(now.norm, now.entering, then.entering, now.as_read(d)))
    return d if now.late else now.turned(d)


def _fed(block: Block, t: Tensor, t0: Tensor, dt: Tensor) -> Tensor:
    """What the FFN adds to the stream, its norms included, from differences of what it reads."""
    h, h0 = (each if block.ffn_before is None else block.ffn_before(each) for each in (t, t0))
    dh = _norm(block.ffn_before, t, t0, dt)
    up, up0, dup = block.ffn_in(h), block.ffn_in(h0), dh @ block.ffn_in.weight
    if (gate := block.ffn_gate) is None:
        hidden = _slope(block.activation, up, up0) * dup
    else:
        a, a0 = gate(h), gate(h0)
        da = _slope(block.activation, a, a0) * (dh @ gate.weight)
        hidden = _middle(block.activation(a), block.activation(a0)) * dup + _middle(up, up0) * da
    df = hidden @ block.ffn_out.weight
    return df if block.ffn_after is None else _norm(block.ffn_after, block.ffn(h), block.ffn(h0), df)


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
        quotient = torch.where(close, derivative(f, _middle(a, b)), quotient)
    return quotient.to(x.dtype)


def _softmax(now: Tensor, then: Tensor, ds: Tensor) -> Tensor:
    """Δα from Δs: Δα = L Δ log α with L the logarithmic mean of α and α', and Σ Δα = 0 gives the normaliser's part.

    The same through exp and a division is exact too, but its two parts grow like exp(Δs) and cancel. Where rows sum to
    less than one, an attention sink takes the rest: one more column, whose score is the same in both passes.
    """
    mean = _logarithmic_mean(now, then)
    sink = _logarithmic_mean(*(_rest(attention) for attention in (now, then)))
    total = (mean.sum(-1, keepdim=True) + sink).clamp(min=torch.finfo(mean.dtype).tiny)  # 0 in rows that see nothing
    return mean * (ds - (mean * ds).sum(-1, keepdim=True) / total)


def _rest(attention: Tensor) -> Tensor:
    """What a row lacks of one, if that is more than rounding."""
    rest = 1 - attention.sum(-1, keepdim=True)
    return torch.where(rest > 64 * torch.finfo(rest.dtype).eps, rest, 0.0)


def _logarithmic_mean(a: Tensor, b: Tensor) -> Tensor:
    """(a − b) / (log a − log b), and 0 where one of them is."""
    seen = (a > 0) & (b > 0)
    gap = (torch.where(seen, a, 1.0).log() - torch.where(seen, b, 1.0).log()).abs()
    return torch.where(seen, torch.maximum(a, b), 0.0) * torch.where(
        gap > 1e-12, -torch.expm1(-gap) / gap.clamp(min=1e-12), 1.0
    )


def _norm(norm: Norm | None, t: Tensor, t0: Tensor, dt: Tensor) -> Tensor:
    """Δ N(t) from Δt: centred, unless it is an RMS norm, over the root of the variance, times γ."""
    if norm is None:
        return dt
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
        averaged,
        rerun(output, of, opened.depth),
        h0,
        h,
        output.number(of).detach(),
        together=together,
        tolerance=HEAD_TOLERANCE,
    )
    found = average(points=HEAD_STEPS)
    gradient, off = found.gradient, found.missed.abs() > HEAD_TOLERANCE * found.travelled
    if bool(off.any()):  # a head with kinks (ReLU): as many points as it takes, for these sentences alone
        gradient = torch.where(off.to(gradient.device)[:, None, None], average().gradient, gradient)
    return gradient, found.change.to(gradient), found.largest.to(gradient)
