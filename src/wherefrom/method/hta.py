r"""Hidden Token Attribution: how strongly a block's output i reacts to its input j.

    hta           c_ij = ‖ ∂o_i/∂x_j ‖_F                       (Brunner et al. 2020)
    hta-x-input   c_ij = ‖ diag(x_j) ∂o_i/∂x_j ‖_F             (GlobEnc, equation 18)

The papers take one backward pass per output component. Here is the same in closed form (rows are vectors, so a
Jacobian's first axis is the input). With M_i = ∂o_i/∂u_i, N_j the Jacobian of what feeds attention (the identity
in post-norm blocks, that of LN1 at x_j in pre-norm ones) and τ the factor on q·k:

    ∂o_i/∂x_j = 1[i=j] M_i + N_j S_ij B_i ,   B_i = W_O M_i                                       [d, d]
    S^h_ij = α^h_ij W_V^h + A^h_i ⊗ c^h_ij + 1[i=j] τ W_Q^h Σ_k α^h_ik k^h_k ⊗ (v^h_k − z^h_i)    [d, d_h]
    A^h_i = τ W_K^h q^h_i ,   c^h_ij = α^h_ij (v^h_j − z^h_i) ,   z^h_i = Σ_k α^h_ik v^h_k

Off the diagonal the norm needs no d×d matrix per pair: with the metric E_j = N_j^T diag(x_j²) N_j (1 in place of
x_j² for plain hta), K_i = B_i B_i^T and Q_j = W_V^T E_j W_V, by head,

    c_ij² = Σ_hg α^h_ij α^g_ij ⟨Q_j[h,g], K_i[h,g]⟩ + 2 Σ_hg α^h_ij (W_V^hT E_j A^g_i) · (K_i[h,g] c^g_ij)
          + Σ_hg (A^h_i · E_j A^g_i) (c^h_ij · K_i[h,g] c^g_ij)

E_j is never built either: it is diagonal, in pre-norm blocks plus a matrix of rank four.
Time O(n d² d_ff + n d³ + n² H d²) for one block instead of O(n² d² (d + d_ff)); memory by `budget`.

Brunner et al. (2020), On Identifiability in Transformers. https://openreview.net/forum?id=BJg1f6EFDB
Modarressi et al. (2022), GlobEnc. https://aclanthology.org/2022.naacl-main.19
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from wherefrom.errors import InvalidInput, InvalidOption
from wherefrom.method.base import method
from wherefrom.method.citations import BRUNNER_2020, MODARRESSI_2022
from wherefrom.method.needs import PLAIN_BLOCKS
from wherefrom.method.tiling import Budget, budget_for, tiles
from wherefrom.work import MB, BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace, Trace
    from wherefrom.model.parts import Block, Norm

IDEA = "sensitivity of a block"
WHOLE_BLOCK = {"attention", "values", "output-projection", "block-input", "both-norms", *PLAIN_BLOCKS}
CPU_BYTES = 768 * 2**20  # two d×d matrices a token are kept; if they fit for all tokens, each is computed once
DEVICE_FACTOR = 32  # times the usual budget of an accelerator


def _cost(s: BatchShape, _: Options) -> Work:
    d, f = s.width, s.units
    return Work(
        wide=s.real * (2 * d * d * f + 8 * d**3) + s.real_pairs * (2 * s.heads + 4) * d * d,
        moved=s.bytes * (s.real * (2 * d * f + 30 * d * d) + 8 * s.real_pairs * s.heads * d),
        calls=60 * len(s.lengths),
        held=min(512 * MB, s.bytes * 2 * s.n * d * d) + min(128 * MB, s.bytes * s.n * (d * f + 6 * d * d)),
    )


@method(
    "hta",
    idea=IDEA,
    paper=BRUNNER_2020,
    needs=WHOLE_BLOCK,
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=_cost,
    additive=False,
)
@torch.no_grad()
def hta(layer: LayerTrace, *, budget: Budget = None) -> Tensor:
    """Sensitivity of each output vector to each input vector: ‖∂o_i/∂x_j‖."""
    return _maps(layer, torch.ones_like(layer.x), budget)


@method(
    "hta-x-input",
    symbols=("HTAxInput",),
    idea=IDEA,
    paper=MODARRESSI_2022,
    needs=WHOLE_BLOCK,
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=_cost,
    additive=False,
)
@torch.no_grad()
def hta_x_input(layer: LayerTrace, *, budget: Budget = None) -> Tensor:
    """Sensitivity of each output vector to each input vector, times that vector: ‖diag(x_j) ∂o_i/∂x_j‖."""
    return _maps(layer, layer.x.square(), budget)


def hta_to_embeddings(trace: Trace, layer: int, *, x_input: bool = True) -> Tensor:
    """HTA (× input) from the output of a layer, across all below it, to the embeddings: [B, n, n].

    By autograd, with one backward pass per output component (n·d of them): for short inputs. The trace must
    have been captured with `grad=True`.
    """
    if not 0 <= layer < len(trace.layers):
        raise InvalidOption(f"layer {layer} is outside the model's {len(trace.layers)} layers")
    output, embeddings = trace.layers[layer].raw["output"], trace.embeddings
    if not (output.requires_grad and embeddings.requires_grad):
        raise InvalidInput("the trace carries no gradients; capture with grad=True a model whose weights require them")
    size, n, width = output.shape
    square = embeddings.new_zeros(size, n, n)
    factor = embeddings.detach().square() if x_input else torch.ones_like(embeddings)
    for token in range(n):
        # Sentences do not see one another, so that one pass serves the same component of all of them.
        seeds = torch.zeros(width, size, n, width, dtype=output.dtype, device=output.device)
        seeds[torch.arange(width), :, token, torch.arange(width)] = 1
        (jacobian,) = torch.autograd.grad(output, embeddings, seeds, retain_graph=True, is_grads_batched=True)
        square[:, token] = torch.einsum("obje,bje->bj", jacobian.square(), factor)
    mask = trace.layers[layer].mask
    return square.sqrt() * mask[:, None, :] * mask[:, :, None]


class _Metric(NamedTuple):
    """E_j = diag(e_j) − Σ_r (l_jr ⊗ r_jr + r_jr ⊗ l_jr) for the sources j of one sentence."""

    diagonal: Tensor  # [n, d]
    left: Tensor  # [n, R, d]
    right: Tensor  # [n, R, d]

    def __call__(self, t: Tensor, sources: slice) -> Tensor:
        """Every row of t [P, d] times every E_j: [J, P, d]."""
        diagonal, left, right = (part[sources] for part in self)
        weighed = diagonal[:, None] * t
        if left.shape[1]:
            weighed -= (t @ right.mT) @ left
            weighed -= (t @ left.mT) @ right
        return weighed


class _Sentence(NamedTuple):
    """One sentence of the batch without its padding."""

    x: Tensor  # [n, d]
    u: Tensor
    w: Tensor
    weight: Tensor  # [n, d]: x², or ones
    attention: Tensor  # [H, n, n]
    key: Tensor  # [H, n, d_h]
    value: Tensor
    z: Tensor
    a: Tensor  # A^h_i: [n, H, d]


def _maps(layer: LayerTrace, weight: Tensor, budget: int | None) -> Tensor:
    result = layer.x.new_zeros(*layer.x.shape[:2], layer.x.shape[1])
    budget = budget_for(layer.x, budget, CPU_BYTES) * (1 if budget or layer.x.device.type == "cpu" else DEVICE_FACTOR)
    for row in range(len(result)):
        n = int(layer.mask[row].sum())
        result[row, :n, :n] = _map(layer.block, _sentence(layer, row, n, weight), budget)
    return result


def _sentence(layer: LayerTrace, row: int, n: int, weight: Tensor) -> _Sentence:
    attention = layer.attention[row, :, :n, :n]
    query, key, value = (t[row, :, :n] for t in (layer.query, layer.key, layer.value))
    return _Sentence(
        x=layer.x[row, :n],
        u=layer.u[row, :n],
        w=layer.w[row, :n],
        weight=weight[row, :n],
        attention=attention,
        # Only differences of keys enter, each times τ: Σ_k α_ik k_k ⊗ (v_k − z_i) forgets a common k.
        key=layer.scaling * (key - key.mean(1, keepdim=True)),
        value=value,
        z=attention @ value,
        a=layer.scaling * torch.einsum("hik,hdk->ihd", query, layer.block.w_k),
    )


def _map(block: Block, s: _Sentence, budget: int) -> Tensor:
    """c [n, n] of one sentence: K_i of many targets, Q_j of many sources, then all pairs of these."""
    n, d = s.x.shape
    size = s.x.element_size()
    metric = _metric(block, s)
    square = size * d * d
    sources = list(tiles(n, square, budget // 3))
    kept = _values(block, metric, sources[0], budget // 6) if len(sources) == 1 else None
    result = s.x.new_empty(n, n)
    for targets in tiles(n, square, budget // 3):
        k = s.x.new_empty(targets.stop - targets.start, d, d)
        own = s.x.new_empty(len(k))
        at_once = list(tiles(len(k), size * block.ffn_in.weight.numel() + 6 * square, budget // 6))
        room = s.x.new_empty(at_once[0].stop, *block.ffn_in.weight.shape)
        for few in at_once:
            i = _within(targets, few)
            m = _after_attention(block, s.u[i], s.w[i], room)  # M_i
            b = block.w_o.flatten(0, 1) @ m
            torch.bmm(b, b.mT, out=k[few])
            own[few] = _own(block, s, i, m, b)
        del room
        for j in sources:
            q = _values(block, metric, j, budget // 6) if kept is None else kept
            for few in tiles(len(k), size * q.shape[1] * 4 * block.heads * d + 2 * square, budget // 6):
                i = _within(targets, few)
                result[i, j] = _pairs(block, s, metric, i, j, k[few], q).clamp(min=0).sqrt()
        result.diagonal()[targets] = own
    return result


def _within(outer: slice, inner: slice) -> slice:
    return slice(outer.start + inner.start, outer.start + inner.stop)


def _after_attention(block: Block, u: Tensor, w: Tensor, room: Tensor) -> Tensor:
    """M_i = ∂o_i/∂u_i: [T, d, d].

    Post-norm (P₁/s₁) Γ₁ (I + W_1 φ' W_2) (P₂/s₂) Γ₂, pre-norm I + (P₂/s₂) Γ₂ W_1 φ' W_2. The projections P, which
    differ from I by rank two, are applied to the product in one go. `room` [>=T, d, d_ff] is written over: fresh
    memory of that size would cost as much as a tenth of the product.
    """
    first = block.norm2 if block.norm_first else block.norm1
    p, scale = _projection(first, u)
    slope = _slope(block, block.ffn_in(first(u))) / scale
    w_1, w_2 = first.gamma[:, None] * block.ffn_in.weight, block.ffn_out.weight
    room = room[: len(u)]
    if block.norm_first:
        m = torch.mul(w_1, slope[:, None], out=room) @ w_2
        m.baddbmm_(p.mT, p @ m, alpha=-1)
        m.diagonal(dim1=1, dim2=2).add_(1)
        return m
    gamma = block.norm2.gamma
    r, last_scale = _projection(block.norm2, w)
    slope, kept = slope / last_scale, first.gamma / (scale * last_scale)  # W_1's part, and the residual's
    m = torch.mul(w_1, slope[:, None], out=room) @ (w_2 * gamma)
    m.diagonal(dim1=1, dim2=2).add_(kept * gamma)
    taken = (r @ w_2.T * slope[:, None]) @ w_1.T + r * kept[:, None]  # what P₂ takes away, transposed: [T, 2, d]
    taken -= (taken @ p.mT) @ p
    return m.baddbmm_(torch.cat([p, taken], 1).mT, torch.cat([p @ m, r * gamma], 1), alpha=-1)


def _projection(norm: Norm, t: Tensor) -> tuple[Tensor, Tensor]:
    """∂LN(t)/∂t = P Γ / s with P = I − pᵀp: p, the constant vector and t̂ over √d [T, 2, d], and s [T, 1]."""
    scale = norm.scale(t)
    p = torch.stack([torch.ones_like(t), norm.centred(t) / scale], 1)
    return p.div_(t.shape[-1] ** 0.5), scale


def _slope(block: Block, t: Tensor) -> Tensor:
    """The derivative of the activation, which acts on each number alone."""
    with torch.enable_grad():
        t = t.detach().requires_grad_()
        (slope,) = torch.autograd.grad(block.activation(t).sum(), t)
    return slope


def _metric(block: Block, s: _Sentence) -> _Metric:
    n, d = s.x.shape
    if not block.norm_first:
        none = s.x.new_empty(n, 0, d)
        return _Metric(s.weight, none, none)
    # With D = diag(weight), P D P = D − pᵀb − bᵀp for b = p D − ½ (p D pᵀ) p.
    norm = block.norm1
    p, scale = _projection(norm, s.x)
    weighed = s.weight[:, None] * p
    b = weighed - 0.5 * (p @ weighed.mT) @ p
    factor = norm.gamma / scale
    return _Metric(s.weight * factor.square(), p * factor[:, None], b * factor[:, None])


def _values(block: Block, metric: _Metric, j: slice, budget: int) -> Tensor:
    """Q_j = W_V^T E_j W_V by pairs of heads: [H², J, d_h²]."""
    w_v = block.w_v.transpose(0, 1).flatten(1)  # [d, H d_h]
    rows = w_v.T.contiguous()
    count = j.stop - j.start
    q = w_v.new_empty(block.heads**2, count, (w_v.shape[1] // block.heads) ** 2)
    for few in tiles(count, 3 * rows.numel() * rows.element_size(), budget):
        q[:, few] = _by_heads(metric(rows, _within(j, few)) @ w_v, block.heads)
    return q


def _by_heads(t: Tensor, heads: int) -> Tensor:
    """[T, H d_h, H d_h] -> [H², T, d_h²]."""
    size = t.shape[-1] // heads
    return t.view(-1, heads, size, heads, size).permute(1, 3, 0, 2, 4).reshape(heads * heads, -1, size * size)


def _own(block: Block, s: _Sentence, i: slice, m: Tensor, b: Tensor) -> Tensor:
    """The diagonal, c_ii of the targets i: here the Jacobian is built."""
    attention = s.attention[:, i]  # [H, T, n]
    own = attention.diagonal(offset=i.start, dim1=1, dim2=2)  # α^h_ii: [H, T]
    c = own[..., None] * (s.value[:, i] - s.z[:, i])
    value = s.value - s.value.mean(1, keepdim=True)
    spread = torch.einsum("hik,hka,hkb->ihab", attention, s.key, value)
    spread -= torch.einsum("hia,hib->ihab", attention @ s.key, attention @ value)
    jacobian = own.T[..., None, None] * block.w_v + block.w_q @ spread  # [T, H, d, d_h]
    jacobian.addcmul_(s.a[i][..., None], c.transpose(0, 1)[:, :, None])
    jacobian = jacobian.transpose(1, 2).flatten(2)  # S_ii: [T, d, H d_h]
    if block.norm_first:
        p, scale = _projection(block.norm1, s.x[i])
        jacobian *= (block.norm1.gamma / scale)[..., None]
        jacobian.baddbmm_(p.mT, p @ jacobian, alpha=-1)
    lengths: Tensor = torch.linalg.vector_norm(torch.baddbmm(m, jacobian, b), dim=2)
    return (lengths.square() * s.weight[i]).sum(1).sqrt()


def _pairs(block: Block, s: _Sentence, metric: _Metric, i: slice, j: slice, k: Tensor, q: Tensor) -> Tensor:
    """c_ij² for targets i and sources j as if none were the same: [I, J]."""
    heads = block.heads
    alpha = s.attention[:, i, j]  # [H, I, J]
    size = (heads, *alpha.shape)
    square = torch.einsum("hij,gij,hgij->ij", alpha, alpha, (_by_heads(k, heads) @ q.mT).view(size))
    c = alpha[..., None] * (s.value[:, None, j] - s.z[:, i, None])  # [H, I, J, d_h]
    kc = c.transpose(0, 1) @ _split(k, heads).permute(0, 2, 3, 1)  # K_i[·,g] c^g_ij: [I, g, J, H d_h]
    kc = _split(kc, heads)  # [I, g, J, h, d_h]
    weighed = metric(s.a[i].flatten(0, 1), j).view(alpha.shape[2], -1, heads, s.x.shape[1])  # E_j A^g_i: [J, I, g, d]
    w_v = block.w_v.transpose(0, 1).flatten(1)
    felt = _split(weighed @ w_v, heads).permute(1, 2, 0, 3, 4)  # W_V^hT E_j A^g_i: [I, g, J, h, d_h]
    square += 2 * torch.einsum("igjh,hij->ij", (felt * kc).sum(-1), alpha)
    gram = torch.einsum("jigd,ihd->igjh", weighed, s.a[i])
    square += (gram * torch.einsum("hijk,igjhk->igjh", c, kc)).sum((1, 3))
    return square


def _split(t: Tensor, heads: int) -> Tensor:
    """[..., H d_h] -> [..., H, d_h]."""
    return t.view(*t.shape[:-1], heads, -1)
