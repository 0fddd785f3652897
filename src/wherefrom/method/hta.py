r"""Hidden Token Attribution: how strongly a block's output i reacts to its input j.

    hta           c_ij = ‖ ∂o_i/∂x_j ‖_F                       (Brunner et al. 2020)
    hta-x-input   c_ij = ‖ diag(x_j) ∂o_i/∂x_j ‖_F             (GlobEnc, equation 18)

The papers take one backward pass per output component. Here is the same in closed form (rows are vectors, so a
Jacobian's first axis is the input). With N_j the Jacobian of the norm before attention, M_i = ∂o_i/∂u_i, P_i that of
the norm on attention's branch (each the identity where there is none) and τ the factor on q·k:

    ∂o_i/∂x_j = 1[i=j] M_i + N_j S_ij B_i ,   B_i = W_O P_i M_i                                   [d, d]
    S^h_ij = α^h_ij W_V^h + A^h_ij ⊗ c^h_ij + 1[i=j] τ W_Q^h J_i Σ_k α^h_ik k^h_k ⊗ (v^h_k − z^h_i)    [d, d_h]
    A^h_ij = τ W_K^h J_j q^h_i ,   c^h_ij = α^h_ij (v^h_j − z^h_i) ,   z^h_i = Σ_k α^h_ik v^h_k

J_j is the Jacobian of what becomes of a projected key: rotary turning and, in some models, a norm (model/keys.py);
with neither, A is the same for every j. Under a soft-cap, α in c and in the last sum is times the cap's slope. A gated
FFN has (W_G φ'(g) p + W_P φ(g)) W_2 in the place of W_1 φ' W_2; that of experts is taken by backward passes through
them, one per component. In a parallel block B_i = W_O P_i and the FFN stands beside it, on the diagonal alone.

Off the diagonal the norm needs no d×d matrix per pair: with the metric E_j = N_j^T diag(x_j²) N_j (1 in place of
x_j² for plain hta), K_i = B_i B_i^T and Q_j = W_V^T E_j W_V, by head,

    c_ij² = Σ_hg α^h_ij α^g_ij ⟨Q_j[h,g], K_i[h,g]⟩ + 2 Σ_hg α^h_ij (W_V^hT E_j A^g_ij) · (K_i[h,g] c^g_ij)
          + Σ_hg (A^h_ij · E_j A^g_ij) (c^h_ij · K_i[h,g] c^g_ij)

E_j is never built either: it is diagonal, behind a norm plus a matrix of rank four (RMS: two).
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
from wherefrom.method.tiling import Budget, budget_for, tiles
from wherefrom.model.keys import product_of
from wherefrom.model.parts import derivative
from wherefrom.work import MB, BatchShape, Options, Work

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace, Trace
    from wherefrom.model.keys import Product, Side
    from wherefrom.model.parts import Block, Norm

IDEA = "sensitivity of a block"
WHOLE_BLOCK = {"one-stream", "attention", "values", "output-projection", "block-input", "linear-values", "known-scores"}
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
    prefers={"ffn-matrices"},
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
    prefers={"ffn-matrices"},
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
        """Every row of t [1, P, d], or of its own t [J, P, d], times every E_j: [J, P, d]."""
        diagonal, left, right = (part[sources] for part in self)
        weighed = diagonal[:, None] * t
        if left.shape[1]:
            weighed -= (t @ right.mT) @ left
            weighed -= (t @ left.mT) @ right
        return weighed


class _Sentence(NamedTuple):
    """One sentence of the batch without its padding."""

    layer: LayerTrace
    row: int
    x: Tensor  # [n, d]
    weight: Tensor  # [n, d]: x², or ones
    attention: Tensor  # α: [H, n, n]
    felt: Tensor  # α times the slope of the soft-cap, where scores have one
    query: Tensor  # τ q: [H, n, d_h]
    key: Tensor  # τ k
    value: Tensor
    z: Tensor
    product: Product  # queries and keys as functions of what attention reads

    @property
    def block(self) -> Block:
        return self.layer.block

    def of(self, t: Tensor, tokens: slice) -> Tensor:
        """These tokens of something [B, n, …]."""
        return t[self.row, tokens]


def _maps(layer: LayerTrace, weight: Tensor, budget: int | None) -> Tensor:
    result = layer.x.new_zeros(*layer.x.shape[:2], layer.x.shape[1])
    budget = budget_for(layer.x, budget, CPU_BYTES) * (1 if budget or layer.x.device.type == "cpu" else DEVICE_FACTOR)
    for row in range(len(result)):
        n = int(layer.mask[row].sum())
        result[row, :n, :n] = _map(_sentence(layer, row, n, weight), budget)
    return result


def _sentence(layer: LayerTrace, row: int, n: int, weight: Tensor) -> _Sentence:
    product = product_of(layer)
    attention = layer.attention[row, :, :n, :n]
    query, key, value = (t[row, :, :n] for t in (product.query.given, product.key.given, layer.value))
    felt, tight = attention, bool((1 - attention.sum(-1) <= 64 * torch.finfo(attention.dtype).eps).all())
    if layer.softcap is not None:
        felt, tight = attention * (1 - (product.scaling * query @ key.mT / layer.softcap).tanh().square()), False
    # Where α sums to one and is felt as it is, Σ_k α_ik k_k ⊗ (v_k − z_i) forgets a common k.
    key = key - key.mean(1, keepdim=True) if tight else key
    return _Sentence(
        layer=layer,
        row=row,
        x=layer.x[row, :n],
        weight=weight[row, :n],
        attention=attention,
        felt=felt,
        query=product.scaling * query,
        key=product.scaling * key,
        value=value,
        z=attention @ value,
        product=product,
    )


def _to_keys(s: _Sentence, i: slice, j: slice) -> Tensor:
    """A^h_ij of targets i and sources j: [J, I, H, d], or [1, I, H, d] where it is the same for all sources."""
    query = s.query[:, i].transpose(0, 1)  # [I, H, d_h]
    if s.product.key.plain:
        j = slice(j.start, j.start + 1)
    return s.product.key.pulled(query.expand(j.stop - j.start, *query.shape), s.row, j)


def _map(s: _Sentence, budget: int) -> Tensor:
    """c [n, n] of one sentence: K_i of many targets, Q_j of many sources, then all pairs of these."""
    block, (n, d) = s.block, s.x.shape
    size, mixed = s.x.element_size(), block.w_o.shape[0] * block.w_o.shape[1]
    metric = _metric(block, s)
    square = size * max(d, mixed) ** 2
    sources = list(tiles(n, square, budget // 3))
    kept = _values(block, metric, sources[0], budget // 6) if len(sources) == 1 else None
    result = s.x.new_empty(n, n)
    for targets in tiles(n, square, budget // 3):
        k = s.x.new_empty(targets.stop - targets.start, mixed, mixed)
        own = s.x.new_empty(len(k))
        at_once = list(tiles(len(k), size * d * block.units + 6 * square, budget // 6))
        room = s.x.new_empty(0 if block.opaque else at_once[0].stop, d, block.units)
        for few in at_once:
            i = _within(targets, few)
            itself, after = _after_attention(s, i, room)
            b = block.w_o.flatten(0, 1) @ after
            torch.bmm(b, b.mT, out=k[few])
            own[few] = _own(s, i, itself, b)
        del room
        for j in sources:
            q = _values(block, metric, j, budget // 6) if kept is None else kept
            held = (4 if s.product.key.plain else 6) * block.heads * d
            for few in tiles(len(k), size * q.shape[1] * held + 2 * square, budget // 6):
                i = _within(targets, few)
                result[i, j] = _pairs(s, metric, i, j, k[few], q).clamp(min=0).sqrt()
        result.diagonal()[targets] = own
    return result


def _within(outer: slice, inner: slice) -> slice:
    return slice(outer.start + inner.start, outer.start + inner.stop)


def _after_attention(s: _Sentence, i: slice, room: Tensor) -> tuple[Tensor, Tensor]:
    """M_i, what reaches the output past attention, and P_i M_i, what does through its branch: [T, d, d] each."""
    layer, block = s.layer, s.block
    x, u, w = (s.of(t, i) for t in (layer.x, layer.u, layer.w))
    if block.parallel:
        itself = _plus_one(_feed(block, x, room))
        after = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand_as(itself)
    else:
        itself = _plus_one(_feed(block, u if block.post is None else block.post(u), room))
        if block.post is not None:
            _left(block.post, u, itself)
        if block.ffn_post is not None:
            _right(block.ffn_post, w, itself)
        after = itself
    if block.after is not None:
        given = s.attention[:, i] @ s.value  # before the norm on the branch
        given = given.transpose(0, 1).flatten(1) @ block.w_o.flatten(0, 1) + block.b_o
        after = _left(block.after, given, after.clone())
    return itself, after


def _plus_one(m: Tensor) -> Tensor:
    m.diagonal(dim1=1, dim2=2).add_(1)
    return m


def _feed(block: Block, t: Tensor, room: Tensor) -> Tensor:
    """The Jacobian of what the FFN adds to the stream, its norms included: [T, d, d]."""
    h = t if block.ffn_before is None else block.ffn_before(t)
    m = _ffn(block, h, room)
    if block.ffn_after is not None:
        _right(block.ffn_after, block.ffn(h), m)
    return m if block.ffn_before is None else _left(block.ffn_before, t, m)


def _ffn(block: Block, h: Tensor, room: Tensor) -> Tensor:
    """W_1 φ' W_2, gated (W_G φ'(g) p + W_P φ(g)) W_2; of experts, by one backward pass for each component.

    `room` [>=T, d, F] is written over: fresh memory of that size would cost as much as a tenth of the product.
    """
    if block.opaque:
        return _experts(block, h)
    up, gate, room = block.ffn_in(h), block.ffn_gate, room[: len(h)]
    if gate is None:
        torch.mul(block.ffn_in.weight, derivative(block.activation, up)[:, None], out=room)
    else:
        g = gate(h)
        torch.mul(gate.weight, (derivative(block.activation, g) * up)[:, None], out=room)
        room.addcmul_(block.ffn_in.weight, block.activation(g)[:, None])
    return room @ block.ffn_out.weight


def _experts(block: Block, h: Tensor) -> Tensor:
    with torch.enable_grad():
        h = h.detach().requires_grad_()
        given = block.ffn(h)
        rows = [torch.autograd.grad(given[:, c].sum(), h, retain_graph=True)[0] for c in range(h.shape[1])]
    return torch.stack(rows, 2)


def _left(norm: Norm, t: Tensor, m: Tensor) -> Tensor:
    """N'(t) m, in place: what reaches m through a norm at t."""
    m *= (norm.gamma / norm.scale(t)).unsqueeze(2)
    p = norm.forgets(t)
    return m.baddbmm_(p.mT, p @ m, alpha=-1)


def _right(norm: Norm, t: Tensor, m: Tensor) -> Tensor:
    """m N'(t), in place: what m reaches through a norm at t."""
    p = norm.forgets(t)
    m.baddbmm_(m @ p.mT, p, alpha=-1)
    m *= (norm.gamma / norm.scale(t)).unsqueeze(1)
    return m


def _metric(block: Block, s: _Sentence) -> _Metric:
    n, d = s.x.shape
    norm = block.before
    if norm is None:
        none = s.x.new_empty(n, 0, d)
        return _Metric(s.weight, none, none)
    # With D = diag(weight), P D P = D − pᵀb − bᵀp for b = p D − ½ (p D pᵀ) p.
    p, scale = norm.forgets(s.x), norm.scale(s.x)
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


def _own(s: _Sentence, i: slice, itself: Tensor, b: Tensor) -> Tensor:
    """The diagonal, c_ii of the targets i: here the Jacobian is built."""
    block, tokens = s.block, torch.arange(i.start, i.stop, device=s.x.device)
    own, felt = (t[:, tokens, tokens] for t in (s.attention, s.felt))  # α^h_ii: [H, T]
    c = felt[..., None] * (s.value[:, i] - s.z[:, i])
    mean = s.value.mean(1, keepdim=True)
    spread = torch.einsum("hik,hka,hkb->ihab", s.felt[:, i], s.key, s.value - mean)
    spread -= torch.einsum("hia,hib->ihab", s.felt[:, i] @ s.key, s.z[:, i] - mean)
    jacobian = own.T[..., None, None] * block.w_v + _to_queries(s.product.query, spread, s.row, i)  # [T, H, d, d_h]
    to_key = s.product.key.pulled(s.query[:, i].transpose(0, 1).unsqueeze(1), s.row, i)[:, 0]  # A^h_ii: [T, H, d]
    jacobian.addcmul_(to_key[..., None], c.transpose(0, 1)[:, :, None])
    jacobian = jacobian.transpose(1, 2).flatten(2)  # S_ii: [T, d, H d_h]
    if block.before is not None:
        _left(block.before, s.x[i], jacobian)
    lengths: Tensor = torch.linalg.vector_norm(torch.baddbmm(itself, jacobian, b), dim=2)
    return (lengths.square() * s.weight[i]).sum(1).sqrt()


def _to_queries(query: Side, spread: Tensor, row: int, i: slice) -> Tensor:
    """W_Q^h J_i times a matrix of each token and head: [T, H, d_h, d_h] -> [T, H, d, d_h]."""
    if query.plain:
        return query.weight @ spread
    return query.pulled(spread.permute(0, 3, 1, 2), row, i).permute(0, 2, 3, 1)


def _pairs(s: _Sentence, metric: _Metric, i: slice, j: slice, k: Tensor, q: Tensor) -> Tensor:
    """c_ij² for targets i and sources j as if none were the same: [I, J]."""
    block, heads = s.block, s.block.heads
    alpha = s.attention[:, i, j]  # [H, I, J]
    size = (heads, *alpha.shape)
    square = torch.einsum("hij,gij,hgij->ij", alpha, alpha, (_by_heads(k, heads) @ q.mT).view(size))
    c = s.felt[:, i, j, None] * (s.value[:, None, j] - s.z[:, i, None])  # [H, I, J, d_h]
    kc = c.transpose(0, 1) @ _split(k, heads).permute(0, 2, 3, 1)  # K_i[·,g] c^g_ij: [I, g, J, H d_h]
    kc = _split(kc, heads)  # [I, g, J, h, d_h]
    a = _to_keys(s, i, j)  # [J, I, g, d], or J is 1
    weighed = metric(a.flatten(1, 2), j).view(alpha.shape[2], *a.shape[1:])  # E_j A^g_ij: [J, I, g, d]
    w_v = block.w_v.transpose(0, 1).flatten(1)
    felt = _split(weighed @ w_v, heads).permute(1, 2, 0, 3, 4)  # W_V^hT E_j A^g_ij: [I, g, J, h, d_h]
    square += 2 * torch.einsum("igjh,hij->ij", (felt * kc).sum(-1), alpha)
    gram = torch.einsum("jigd,ihd->igjh", weighed, a[0]) if len(a) == 1 else torch.einsum("jigd,jihd->igjh", weighed, a)
    square += (gram * torch.einsum("hijk,igjhk->igjh", c, kc)).sum((1, 3))
    return square


def _split(t: Tensor, heads: int) -> Tensor:
    """[..., H d_h] -> [..., H, d_h]."""
    return t.view(*t.shape[:-1], heads, -1)
