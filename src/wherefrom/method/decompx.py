r"""DecompX: the vectors of every token, taken apart by input token, through all blocks and the head.

    x_i = Σ_k x_{i⇐k}        score_k = what x_{i⇐k} of the token that is read makes of the logit,   Σ_k score_k = logit

Attention, the scales of norms and the ratios of activations stay as they are in the real pass; biases are shared out
(`frozen_block.py`, `decomposition.py`: the rules). The head is made of linear layers, activations and norms and gets
the same rules: its tanh or GELU as `head_activation` says.

There are two ways to the scores. Where the shares of biases do not depend on the vectors (none, token, cls; equal,
where every token sees all; any, where a model has no biases), all is linear in the inputs and

    score_k = ⟨∂ỹ/∂x_k, x_k⟩ + ⟨∂ỹ/∂v_k, v_k⟩

with ỹ the frozen model without its biases and v_k what token k gives in the first block, its bias included: one vector
taken back, about as long as a forward pass. Otherwise all n² vectors are taken forward, 0.8 n forward passes.

Text and code part in two places, and both times the code is followed, with which the published tables were made:
attention's bias is shared out after the residual connection has joined (equation 5: before), and in the first block the
bias of a value stays with its token (`value_bias="spread"`: equation 16). Of models that the authors' code does not
know, pre-norm blocks are taken by the same rules, gated FFNs by `gate`.

Modarressi et al. (2023), DecompX: Explaining Transformers Decisions by Propagating Token Decomposition.
https://aclanthology.org/2023.acl-long.149
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.linalg import vector_norm

from wherefrom.method.base import Scores, method
from wherefrom.method.citations import MODARRESSI_2023
from wherefrom.method.decomposition import (
    Bias,
    DecompositionRules,
    decomposed,
    has_biases,
    local_cost,
    local_norms,
    own_values,
    share,
    through_norm,
)
from wherefrom.method.exact_sum import misses_sum, refuse_missed_sum
from wherefrom.method.frozen_block import Approximation, Arrived, Freeze, Norms, at_input, back, linearised, whole
from wherefrom.method.readout import Entries, entries, head_back, made
from wherefrom.model.head import Step
from wherefrom.model.head import head as head_of
from wherefrom.model.parts import Linear, Norm
from wherefrom.work import BatchShape, Options, Work, forward

if TYPE_CHECKING:
    from wherefrom.model import LayerTrace, OutputTrace

IDEA = "decomposition by input token"
AnyBias = Literal["absdot", "abssim", "norm", "equal", "dot", "cls", "token", "token-absdot", "none"]
LocalBias = Literal["absdot", "abssim", "norm", "equal", "dot", "none"]
ValueBias = Literal["kept", "spread"]
GateRule = Literal["half", "gate"]
UNCOUPLED = ("none", "token", "cls")
NEEDED = {
    "one-stream",
    "attention",
    "values",
    "output-projection",
    "block-input",
    "both-norms",
    "linear-values",
    "layers",
}


def _cost(s: BatchShape, options: Options) -> Work:
    kept = s.depth * s.bytes * (4 * s.pairs * s.heads + 9 * s.rows * s.width)
    if options["bias"] in UNCOUPLED:
        return forward(s).times(1.2 * s.depth)._replace(held=kept + 4 * s.bytes * s.rows * s.units)
    work = local_cost(s, options)
    return work.times(max(s.depth - 1.2, 0.5))._replace(held=kept + work.held)


@method(
    "decompx",
    symbols=("DecompX",),
    idea=IDEA,
    paper=MODARRESSI_2023,
    needs={*NEEDED, "head", "chained-head", "read-token"},
    prefers={"ffn-matrices"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil", "adds-up"},
    cost=_cost,
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
@torch.no_grad()
def decompx(
    output: OutputTrace,
    *,
    bias: AnyBias = "absdot",
    activation: Approximation = "zero-origin",
    head_activation: Literal["zero-origin", "linear"] = "zero-origin",
    ffn: bool = True,
    norms: Norms = "both",
    gate: GateRule = "half",
    value_bias: ValueBias = "kept",
) -> Scores:
    """What each input token adds to the logit, by vectors taken apart through all blocks and the head.

    bias: who gets the biases. "absdot" shares each out by |b · x|, "abssim", "norm", "equal" and "dot" otherwise, "cls"
    gives all to the first token; "none" leaves them out, as does "token" (the authors' token of biases, whose score is
    minus `delta`), and "token-absdot" shares that score out at the very end.
    activation: "zero-origin" (φ(z) / z), "linear" (the tangent) or "relu" (1 above zero), of FFNs;
    head_activation: the same for the head's.
    ffn: whether FFNs are taken apart too, norms: which of the norms on the stream are ("both", "first", "second",
    "none"; BERT's); with less than all the scores do not add up. gate: of a gated FFN, "half" to either
    factor or the gate as a constant. Where biases are not shared out by the vectors themselves it takes about one more
    forward pass, and `layer_scores` say the same of each block's input; otherwise 0.8 n forward passes.
    """
    read = entries(output)
    steps = head_of(output.trace, read.rows)
    rules = DecompositionRules(_rule(bias), Freeze(ffn, activation, gate, norms), value_bias)
    logit = output.number().detach()
    # Of a difference, rounding is as large as that of its two sides.
    largest = made(steps).gather(-1, read.columns[..., None]).abs().amax((-2, -1)).to(logit.device)
    exact = bias not in ("none", "token") and ffn and norms == "both" and activation != "relu"
    dtype = output.trace.opened.pretrained.dtype
    if _uncoupled(output, bias, rules, head_activation, steps):
        take = partial(_taken_back, rules=rules, head=head_activation)
        layers = output.together(f"decompx {rules} {head_activation}", take) if output.several else take([output])[0]
        layers = layers.to(logit.device)
        if bias in ("cls", "equal"):
            real = output.mask.to(layers)
            shares = real / real.sum(-1, keepdim=True) if bias == "equal" else torch.eye(1, real.shape[1]).to(real)
            layers = layers + (logit - layers.sum(-1)).unsqueeze(-1) * shares
        # Experts may hold constants that no weight of theirs shows, (up + 1) · glu: biases to be shared out, too.
        if not (exact and bool(misses_sum(layers[0], logit, largest, dtype).any())):
            return Scores(layers[0], layers, layers[0].sum(-1) - logit)
    scores = _taken_forward(output, read, steps, rules, head_activation, later=bias == "token-absdot")
    scores = scores.to(logit.device)
    if exact:
        refuse_missed_sum("decompx", scores, logit, largest, dtype, "use a float64 model, or gradient-x-input")
    return Scores(scores, None, scores.sum(-1) - logit)


def _rule(bias: AnyBias) -> Bias:
    """How biases are shared out on the way."""
    return "none" if bias in ("token", "token-absdot") else bias  # type: ignore[return-value]


def _uncoupled(output: OutputTrace, bias: AnyBias, rules: DecompositionRules, head: str, steps: list[Step]) -> bool:
    """Whether no share of a bias depends on the vectors, so that all is linear."""
    if bias in UNCOUPLED:
        return True
    if bias == "token-absdot":
        return False
    layers = output.trace.layers
    if bias == "equal" and all(layer.block.before is None and layer.block.ffn_before is None for layer in layers):
        pairs = layers[0].mask[:, :, None] & layers[0].mask[:, None]
        return bool(((layers[0].attention != 0).any(1) | ~pairs).all())
    tangents = head == "linear" or rules.freeze.activation == "linear"
    return not tangents and not any(_biased(layer) for layer in layers) and not any(map(_has_bias, steps))


def _biased(layer: LayerTrace) -> bool:
    block = layer.block
    norms = (block.before, block.after, block.post, block.ffn_before, block.ffn_after, block.ffn_post)
    ffn = () if block.opaque else (block.ffn_in, block.ffn_gate, block.ffn_out)
    linears = (block.projections()[2], block.output(), *ffn)
    found = [norm.beta for norm in norms if norm is not None] + [each.bias for each in linears if each is not None]
    return any(bool(bias.any()) for bias in found) or (block.opaque and has_biases(block))


def _has_bias(step: Step) -> bool:
    if isinstance(step.part, Norm):
        return bool(step.part.beta.any())
    return isinstance(step.part, Linear) and bool(step.part.bias.any())


# One vector back ------------------------------------------------------------------------------------------


def _taken_back(outputs: list[OutputTrace], rules: DecompositionRules, head: Approximation) -> list[Tensor]:
    """What the input of each block adds to each number, biases left out: K times [L, B, n]."""
    trace, mask = outputs[0].trace, outputs[0].mask
    *below, last = trace.layers
    # The last block's output counts where it is read, which is another token for each.
    arrived = []
    for read in map(entries, outputs):
        g, rows = head_back(read, head_of(trace, read.rows), head).to(last.device), read.rows.to(last.device)
        arrived.append((back(last, g, rules.freeze, rows), rows))
    if not below:
        return [_at_first(last, *each, rules)[None] * mask.to(last.device) for each in arrived]
    g = torch.stack([at_input(last, *each) for each in arrived])
    found = [(g * last.x).sum(-1)]
    for layer in reversed(below[1:]):
        g = at_input(layer, back(layer, g.to(layer.device), rules.freeze))
        found.append((g * layer.x).sum(-1))
    found.append(_at_first(below[0], back(below[0], g.to(below[0].device), rules.freeze), None, rules))
    layers = torch.stack([each.to(last.device) for each in found[::-1]], 1)
    return list((layers * mask.to(last.device)).unbind(0))


def _at_first(layer: LayerTrace, arrived: Arrived, rows: Tensor | None, rules: DecompositionRules) -> Tensor:
    """What the input of the first block adds, past attention and through its values: [..., B, n]."""
    through_values = (arrived.value * own_values(layer, rules)).sum((-3, -1))
    return through_values + (whole(arrived.stream, rows, layer.x.shape[1]) * layer.x).sum(-1)


# All vectors forward --------------------------------------------------------------------------------------


def _taken_forward(
    output: OutputTrace,
    read: Entries,
    steps: list[Step],
    rules: DecompositionRules,
    head: Approximation,
    *,
    later: bool,
) -> Tensor:
    """Scores with biases shared out by the vectors, [B, n]; `later`: those of the whole way at the very end."""
    trace = output.trace
    full = made(steps) if later else None
    scores = steps[-1].x.new_zeros(trace.batch.ids.shape)
    for sentence, n in enumerate(trace.batch.lengths):
        rows = read.rows[sentence].tolist()
        *_, parts = decomposed(trace.layers, sentence, n, rules, causal=trace.opened.causal, last=rows)
        entries = _through_head(parts.to(scores.device), steps, sentence, rules.bias, head)  # [m, n, C]
        if full is not None:
            share(entries, full[sentence] - entries.sum(1), "absdot")
        for which, (column, sign) in enumerate(zip(read.columns[sentence], read.signs[sentence], strict=True)):
            scores[sentence, :n] += sign * entries[which, :, column]
    return scores


def _through_head(parts: Tensor, steps: list[Step], sentence: int, rule: Bias, way: Approximation) -> Tensor:
    for part, given in steps:
        x = given[sentence]
        if isinstance(part, Norm):
            parts = through_norm(parts, part, part.scale(x), rule)
        elif isinstance(part, Linear):
            parts = share(parts @ part.weight, part.bias, rule)
        elif isinstance(part, Tensor):
            parts = parts * part[sentence].unsqueeze(1)
        else:
            factor, rest = linearised(part, x, way)
            parts = parts * factor.unsqueeze(1)
            parts = parts if rest is None else share(parts, rest, rule)
    return parts


# Maps -----------------------------------------------------------------------------------------------------


def _map_cost(s: BatchShape, options: Options) -> Work:
    work = local_cost(s, options)
    kept = s.depth * s.bytes * (4 * s.pairs * s.heads + 9 * s.rows * s.width)
    return work.times(s.depth)._replace(held=kept + work.held)


@method(
    "decompx-map",
    idea=IDEA,
    paper=MODARRESSI_2023,
    needs=NEEDED,
    prefers={"ffn-matrices"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=_map_cost,
    whole=True,
    additive=False,
    aggregate=None,
)
@torch.no_grad()
def decompx_map(
    output: OutputTrace,
    *,
    bias: Bias = "absdot",
    activation: Approximation = "zero-origin",
    ffn: bool = True,
    norms: Norms = "both",
    gate: GateRule = "half",
    value_bias: ValueBias = "kept",
) -> list[Tensor]:
    """How long the part of each token is that comes from each input token, after each block: ‖x_{i⇐k}‖.

    From the input to each block already, so that there is nothing to roll out. Options as those of `decompx`.
    """
    rules, trace = DecompositionRules(bias, Freeze(ffn, activation, gate, norms), value_bias), output.trace
    maps = [layer.x.new_zeros(layer.attention.shape[0], *layer.attention.shape[2:]) for layer in trace.layers]
    for sentence, n in enumerate(trace.batch.lengths):
        states = decomposed(trace.layers, sentence, n, rules, causal=trace.opened.causal)
        for found, state in zip(maps, states, strict=True):
            found[sentence, :n, :n] = vector_norm(state, dim=-1)
    return maps


@method(
    "decompx-local",
    idea=IDEA,
    paper=MODARRESSI_2023,
    needs=NEEDED - {"layers"},
    prefers={"ffn-matrices"},
    checks={"batch-equals-single", "token-permutation", "hidden-tokens"},
    cost=local_cost,
)
@torch.no_grad()
def decompx_local(
    layer: LayerTrace,
    *,
    bias: LocalBias = "absdot",
    activation: Approximation = "zero-origin",
    ffn: bool = True,
    gate: GateRule = "half",
) -> Tensor:
    """How long the part of each token is that comes from each input of one block: GlobEnc with FFN and biases.

    Rolled out like GlobEnc; options as those of `decompx`. Without biases it is the paper's "GlobEnc + FFN".
    """
    return local_norms(layer, DecompositionRules(bias, Freeze(ffn, activation, gate)))
