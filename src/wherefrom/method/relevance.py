r"""Relevance propagated from one output back through the whole model (LRP), and three methods that read it.

    partial-lrp               mean_h (R_α^h)⁺ of the last layer, the readout row                  (Voita et al. 2019)
    transformer-attribution   mean_h (∇α^h ⊙ R_α^h)⁺ + I, rows to one, rolled out over layers     (Chefer et al. 2021)
    full-lrp                  Σ_d R at the output of the embeddings, signed                       (Bach et al. 2015)

The authors divide a row by its sum in their code for BERT and not in that for ViT; `row_sums="auto"` does as they do,
for texts ("one") and pictures ("kept").

On ViT `partial-lrp` is the authors' `last_layer`, by the rules of all three methods. What their tables call partial LRP
was run by a second class with older rules (R divided by x⁺W⁺ and by x⁻W⁻ apart, sums not shared out), and has other
numbers.

R starts as 1 at the explained logit and goes down by the rules of `lrp_rules`. The head is a chain of linear layers
with identities between; a sequence head hands everything to the token that it reads. In a block (R_α is the
relevance of the attention weights after the softmax, taken down on the way)

    post-norm   LN2 → add(FFN, y) → FFN → clone(y) → LN1 → add(attention, x) → W_O → matmul(α, V) → mask, matmul(Q, Kᵀ)
                → W_Q, W_K, W_V → clone(x; Q, K, V) → clone(x; attention, residual)
    pre-norm    add(FFN, u) → FFN → LN2 → clone(u) → add(attention, x) → W_O → matmul(α, V) → mask, matmul(Q, Kᵀ)
                → W_Q, W_K, W_V → clone(LN1 x; Q, K, V) → LN1 → clone(x; attention, residual)

**A number with two terms** (target and foil; start and end of an answer) is propagated term by term, R = R_target −
R_foil. Started together, +1 and −1 would vanish at the first add, whose rule multiplies by the sum of R.

**Float64, whatever the model's dtype.** Add and matmul divide by sums that cancel; in float32 the order of tokens
changes in every sixth sentence of SST-2. The pass that relevance goes back through is the model's own, repeated in
float64 from the embeddings on (`model/double_twin.py`); only ∇α comes from the model's own dtype.

**A patent.** The README of LXT, another implementation, says that LRP is patented and free for personal and scientific
use only. Whether that concerns you is for you to find out before you use these three methods for anything else.

Voita et al. (2019), Analyzing Multi-Head Self-Attention. https://aclanthology.org/P19-1580
Chefer, Gur & Wolf (2021), Transformer Interpretability Beyond Attention Visualization. https://arxiv.org/abs/2012.09838
Qiang et al. (2022), AttCAT. https://openreview.net/forum?id=cA8Zor8wFr5
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from wherefrom.errors import InvalidOption
from wherefrom.method.base import Scores, method
from wherefrom.method.citations import BACH_2015, CHEFER_2021, VOITA_2019
from wherefrom.method.lrp_rules import add, clone, linear, linear_one, masked, matmul
from wherefrom.method.needs import PLAIN_BLOCKS
from wherefrom.method.normalise import identity_like, stacked, to_one
from wherefrom.model.double_twin import DoubleTrace, Passed, double_trace
from wherefrom.model.target import Term, terms
from wherefrom.patents import PATENTED_IDEA
from wherefrom.work import passes

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace, OutputTrace


class Mixed(NamedTuple):
    """Relevance inside one block, where attention has been left and its projections not yet entered."""

    residual: Tensor  # of the block's input x, past attention [B, m, d]
    attention: Tensor  # of α [B, H, m, n]
    value: Tensor  # of V [B, H, n, d_h]


class Relevance(NamedTuple):
    """Of one number, everything on the way down to the first block's attention weights."""

    attention: list[Tensor]  # L times [B, H, n, n]
    inputs: list[Tensor]  # what each block but the first got, summed over d: L − 1 times [B, n]
    first: list[tuple[Tensor, Mixed]]  # for each term its sign [B, 1] and where the first block was left


@method(
    "partial-lrp",
    symbols=("PartialLRP",),
    idea=PATENTED_IDEA,
    paper=VOITA_2019,
    needs={"weights", "head", "read-token", *PLAIN_BLOCKS},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=passes(8, 2),
    class_specific=True,
    aggregate=None,
)
def partial_lrp(output: OutputTrace) -> list[Tensor]:
    """LRP relevance of the attention weights, its positive part, mean over heads."""
    return [layer.relu().mean(1) for layer in _relevance(output).attention]


@method(
    "transformer-attribution",
    symbols=("TransAtt",),
    idea=PATENTED_IDEA,
    paper=CHEFER_2021,
    needs={"attention", "weights", "gradient", "head", "read-token", *PLAIN_BLOCKS},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens", "rows-sum-to-one"},
    cost=passes(9, 2),
    class_specific=True,
)
def transformer_attribution(
    output: OutputTrace, *, start_layer: int = 0, row_sums: Literal["auto", "one", "kept"] = "auto"
) -> list[Tensor]:
    """LRP relevance of the attention weights times their gradient, with residual connection."""
    sums = row_sums == "kept" or (row_sums == "auto" and output.trace.opened.images)
    depth = output.trace.opened.depth
    if not 0 <= start_layer < depth:
        raise InvalidOption(f"start_layer is {start_layer}; expected a layer of the model's {depth}, 0 to {depth - 1}")
    gradients, found = output.gradients(attention=True).attention, _relevance(output).attention
    maps = []
    for layer, (gradient, relevance) in enumerate(zip(gradients, found, strict=True)):
        identity = identity_like(relevance)
        positive = (gradient.to(relevance.device) * relevance).relu().mean(1)
        whole = positive + identity if layer >= start_layer else identity.expand_as(positive)
        maps.append(whole if sums else to_one(whole))
    return maps


@method(
    "full-lrp",
    symbols=("FullLRP",),
    idea=PATENTED_IDEA,
    paper=BACH_2015,
    needs={"weights", "head", "read-token", *PLAIN_BLOCKS},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil"},
    cost=passes(8, 2),
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
@torch.no_grad()
def full_lrp(output: OutputTrace) -> Scores:
    """LRP relevance of the embeddings. `layer_scores` are what arrives at the input of each block."""
    found, double = _relevance(output), _double(output)
    blocks, words = [], []
    for sign, mixed in found.first:
        relevance = _below(double.layers[0], mixed, None)
        blocks.append(sign * relevance.sum(-1))
        for passed in reversed(double.before):
            relevance = _through(passed, passed.x, relevance)
        words.append(sign * relevance.sum(-1))
    layers = [torch.stack(blocks).sum(0), *found.inputs]
    return Scores(torch.stack(words).sum(0), stacked(layers))


# From the output down -------------------------------------------------------------------------------------


def _double(output: OutputTrace) -> DoubleTrace:
    return output.trace.once("double", lambda trace: double_trace(trace.opened, trace.batch))


def _relevance(output: OutputTrace) -> Relevance:
    return output.once("relevance", _propagated)


@torch.no_grad()
def _propagated(output: OutputTrace) -> Relevance:
    """The terms of the explained number, one after the other, and their sum."""
    trace = output.trace
    asked = [terms(trace.opened, *each) for each in zip(trace.batch.sentences, output.answers, strict=True)]
    double = _double(output)
    attention: list[Tensor] = []
    inputs: list[Tensor] = []
    first: list[tuple[Tensor, Mixed]] = []
    for which in range(max(map(len, asked))):
        # A sentence with fewer terms than its neighbours repeats one, which then counts for nothing.
        term = [each[which] if which < len(each) else each[0]._replace(sign=0) for each in asked]
        sign = double.layers[0].x.new_tensor([each.sign for each in term])[:, None]
        maps, arrived, mixed = _one_term(double, term)
        first.append((sign, mixed))
        maps = [sign.to(each.device)[..., None, None] * each for each in maps]
        arrived = [sign.to(each.device) * each for each in arrived]
        attention = [a + b for a, b in zip(attention, maps, strict=True)] if attention else maps
        inputs = [a + b for a, b in zip(inputs, arrived, strict=True)] if inputs else arrived
    return Relevance(attention, inputs, first)


def _one_term(double: DoubleTrace, term: list[Term]) -> tuple[list[Tensor], list[Tensor], Mixed]:
    """One entry of the output: relevance of every α, of the inputs of all blocks but the first, and the rest."""
    size, n = double.layers[0].x.shape[:2]
    # The last block's output is relevant at one token only, so its upper half is a matter of one row.
    rows: Rows | None = (torch.arange(size), torch.tensor([each.position for each in term]))
    relevance = _head(double, term)
    maps: list[Tensor] = []
    inputs: list[Tensor] = []
    for layer, hidden in zip(reversed(double.layers), reversed(double.hidden), strict=True):
        mixed = _above(layer, hidden, relevance, rows)
        maps.append(_spread(mixed.attention.transpose(1, 2), rows, n).transpose(1, 2))
        if layer.index:
            relevance = _below(layer, mixed, rows)
            inputs.append(relevance.sum(-1))
            rows = None
    return maps[::-1], inputs[::-1], mixed if rows is None else _whole(mixed, rows, n)


def _head(double: DoubleTrace, term: list[Term]) -> Tensor:
    """From an output to the token that the head reads: [B, 1, d]."""
    position = torch.tensor([each.position for each in term])

    def entered(passed: Passed) -> Tensor:
        return passed.x if passed.x.ndim == 2 else passed.x[torch.arange(len(term)), position]

    *chain, last = double.after
    columns = last.linear.weight.T[[each.column for each in term]].double()
    relevance = linear_one(entered(last), columns, columns.new_ones(len(term)))
    for passed in reversed(chain):
        relevance = _through(passed, entered(passed), relevance)
    first = double.after[0]
    if first.x.ndim == 2:  # a token has been chosen, which has the rule of a single copy
        relevance = clone(first.x, relevance)
    return relevance[:, None]


def _through(passed: Passed, x: Tensor, relevance: Tensor) -> Tensor:
    weight = passed.linear.weight
    return linear(x, weight, relevance.to(x.device), x @ weight.double())


# Through one block ----------------------------------------------------------------------------------------

Rows = tuple[Tensor, Tensor]  # the one row of each sentence that is meant


def _above(layer: LayerTrace, hidden: Tensor, relevance: Tensor, rows: Rows | None) -> Mixed:
    """From the block's output, through its FFN and the mixing of values, to the attention weights."""
    block, relevance = layer.block, relevance.to(layer.x.device)
    x, u, w, hidden = (_pick(each, rows) for each in (layer.x, layer.u, layer.w, hidden))
    attention = _pick(layer.attention.transpose(1, 2), rows).transpose(1, 2)
    past = u if block.norm_first else block.norm1(u)  # what goes past the FFN
    into = block.norm2(u) if block.norm_first else past  # what goes into it
    after = w - past
    to_ffn, to_past = add(after, past, relevance)
    to_ffn = linear(block.activation(hidden), block.ffn_out.weight, to_ffn, after - block.ffn_out.bias)
    to_ffn = linear(into, block.ffn_in.weight, to_ffn, hidden - block.ffn_in.bias)
    mixture, w_o = attention @ layer.value, block.output()
    to_attention, to_x = add(u - x, x, clone(past, to_ffn, to_past))
    to_mixture = linear(_join(mixture), w_o.weight, to_attention, u - x - w_o.bias)
    return Mixed(to_x, *matmul(attention, layer.value, _split(to_mixture, layer.heads), mixture))


def _below(layer: LayerTrace, mixed: Mixed, rows: Rows | None) -> Tensor:
    """From the attention weights, through queries, keys and values, to the block's input."""
    block, n = layer.block, layer.x.shape[1]
    query = _pick(layer.query.transpose(1, 2), rows).transpose(1, 2)
    product = query @ layer.key.mT
    images, to_scores = block.family.images, mixed.attention
    if not images:
        to_scores = masked(product * layer.scaling, to_scores)
    to_query, to_key = matmul(query, layer.key.mT, to_scores, product)
    into = block.norm1(layer.x) if block.norm_first else layer.x
    parts = []
    for projection, values, to, where in zip(
        block.projections(),
        (query, layer.key, layer.value),
        (to_query, to_key.mT, mixed.value),
        (rows, None, None),
        strict=True,
    ):
        found = linear(_pick(into, where), projection.weight, _join(to), _join(values) - projection.bias)
        parts.append(_spread(found, where, n))
    # In the authors' ViT one matrix gives all three, so that there are no copies of what it reads.
    whole = torch.stack(parts).sum(0) if images else clone(into, *parts)
    return clone(layer.x, whole, _spread(mixed.residual, rows, n))


def _pick(t: Tensor, rows: Rows | None) -> Tensor:
    """[B, n, …] -> [B, 1, …], or all of it."""
    return t if rows is None else t[rows][:, None]


def _spread(t: Tensor, rows: Rows | None, n: int) -> Tensor:
    """The inverse: one row each among n rows of zeros."""
    if rows is None:
        return t
    whole = t.new_zeros(t.shape[0], n, *t.shape[2:])
    whole[rows] = t[:, 0]
    return whole


def _whole(mixed: Mixed, rows: Rows, n: int) -> Mixed:
    attention = _spread(mixed.attention.transpose(1, 2), rows, n).transpose(1, 2)
    return Mixed(_spread(mixed.residual, rows, n), attention, mixed.value)


def _split(t: Tensor, heads: int) -> Tensor:
    """[B, n, H·d_h] -> [B, H, n, d_h]."""
    return t.reshape(*t.shape[:2], heads, -1).transpose(1, 2)


def _join(t: Tensor) -> Tensor:
    return t.transpose(1, 2).flatten(2)
