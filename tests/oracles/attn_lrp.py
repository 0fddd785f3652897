"""AttnLRP and CP-LRP rule by rule, as relevance that is handed down: no gradients, no frozen pass.

After the equations of Achtibat et al. (2024), ε = 0, over what a plain captured pass noted:

    z = x W + b      R_i = x_i Σ_j w_ij R_j / z_j                 the ε-rule
    a + b            each its share of the sum
    a · b            half to each                                 the uniform rule
    A V              half to each, A_ij V_jk / Σ_j A_ij V_jk
    softmax          R_i = s_i (R_i − α_i Σ_j R_j)                a Taylor expansion
    g(z), norms      all of it                                    the identity rule
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from wherefrom.model import LayerTrace, Trace
from wherefrom.model.parts import Norm


def relevance(trace: Trace, row: int, target: int, rule: str) -> Tensor:
    """The relevance of every block's input for one logit, read at token `row`: [L, n]. One text alone."""
    opened, last = trace.opened, trace.layers[-1]
    given = torch.zeros_like(last.output[0])
    given[row] = _head(opened, last.output[0, row], target)
    found = []
    for layer in reversed(trace.layers):
        given = _block(opened, layer, given, rule)
        found.append(given.sum(-1))
    return torch.stack(found[::-1])


def _head(opened: Any, x: Tensor, target: int) -> Tensor:
    """From the logit to what the head reads of the last block's output."""
    model = opened.model
    if opened.task == "classification":  # BERT's
        pooler, classifier = model.bert.pooler.dense, model.classifier
        pooled = torch.tanh(pooler(x))
        logits = classifier(pooled)
        down = _linear(pooled, classifier.weight.T, classifier.bias, _only(logits, target))
        return _linear(x, pooler.weight.T, pooler.bias, down)
    norm, head = opened.blocks[-1].reader, model.get_output_embeddings()
    read = norm(x)
    logits = head(read)
    cap = getattr(opened.config, "final_logit_softcapping", None)
    start = _only(cap * torch.tanh(logits / cap) if cap else logits, target)
    return _norm(norm, x, _linear(read, head.weight.T, 0 if head.bias is None else head.bias, start))


def _only(logits: Tensor, target: int) -> Tensor:
    start = torch.zeros_like(logits)
    start[target] = logits[target]
    return start


# The rules ------------------------------------------------------------------------------------------------


def _linear(x: Tensor, weight: Tensor, bias: Any, given: Tensor) -> Tensor:
    return x * ((given / (x @ weight + bias)) @ weight.T)


def _norm(norm: Norm | None, x: Tensor, given: Tensor) -> Tensor:
    """Of the sum γ (x_i − mean x) / s, every x_i gets what it contributes."""
    if norm is None:
        return given
    down = norm.gamma * (given / norm(x)) / norm.scale(x)
    return x * (down - down.mean(-1, keepdim=True) if norm.centres else down)


def _block(opened: Any, layer: LayerTrace, given: Tensor, rule: str) -> Tensor:
    """From a block's output to its input: [n, d] -> [n, d]."""
    block, x, u = layer.block, layer.x[0], layer.u[0]
    y = u if block.post is None else block.post(u)
    entered = x if block.parallel else y
    read = entered if block.ffn_before is None else block.ffn_before(entered)
    made = block.ffn(read)
    fed = made if block.ffn_after is None else block.ffn_after(made)
    to_w = _norm(block.ffn_post, y + fed, given)
    to_made = _norm(block.ffn_after, made, to_w * fed / (y + fed))
    to_entered = _norm(block.ffn_before, entered, _ffn(block, read, to_made, rule))
    to_y = to_w * y / (y + fed)
    to_u = _norm(block.post, u, to_y if block.parallel else to_y + to_entered)
    attended = block.attended(layer.attention, layer.value)[0]
    to_attended = _norm(block.after, attended, to_u * (u - x) / u)
    past = to_u * x / u + (to_entered if block.parallel else 0)
    source = block.source(x)
    return past + _norm(block.before, x, _attention(opened, layer, source, to_attended, rule))


def _ffn(block: Any, x: Tensor, given: Tensor, rule: str) -> Tensor:
    if block.opaque:
        return _experts(block.part(block.family.ffn.module), x, given, rule)
    gate = block.ffn_gate
    up, down = block.ffn_in, block.ffn_out
    if gate is None:
        return _linear(x, *up, _linear(block.activation(up(x)), *down, given))
    to_units = _linear(block.activation(gate(x)) * up(x), *down, given)
    if rule == "cp-lrp":
        return _linear(x, *up, to_units)
    return _linear(x, *up, to_units / 2) + _linear(x, *gate, to_units / 2)


def _experts(module: Any, x: Tensor, given: Tensor, rule: str) -> Tensor:
    """Mixtral's: the best of a softmax, divided by their sum, weigh as many gated FFNs."""
    experts, router = module.experts, module.gate.weight.T
    found = torch.zeros_like(x)
    for token in range(len(x)):
        scores = (x[token] @ router).double()
        best = scores.topk(module.top_k).indices
        shares = torch.zeros_like(scores)
        shares[best] = scores[best].softmax(-1)
        parts = {}
        for e in best.tolist():
            gate, up = (x[token] @ half.T for half in experts.gate_up_proj[e].chunk(2))
            units = experts.act_fn(gate) * up
            parts[e] = (units, shares[e] * (units @ experts.down_proj[e].T))
        total = sum(out for _, out in parts.values())
        to_shares = torch.zeros_like(scores)
        for e, (units, out) in parts.items():
            arrived = given[token] * out / total
            kept = 1.0 if rule == "cp-lrp" else 0.5
            to_shares[e] = (1 - kept) * arrived.sum()
            to_units = _linear(units, experts.down_proj[e].T, 0, kept * arrived)
            to_gate, to_up = (0, 1) if rule == "cp-lrp" else (0.5, 0.5)
            first, second = experts.gate_up_proj[e].chunk(2)
            found[token] += _linear(x[token], second.T, 0, to_up * to_units)
            found[token] += _linear(x[token], first.T, 0, to_gate * to_units)
        to_scores = scores * (to_shares - shares * to_shares.sum())
        found[token] += _linear(x[token], router, 0, to_scores)
    return found


def _attention(opened: Any, layer: LayerTrace, source: Tensor, given: Tensor, rule: str) -> Tensor:
    block, alpha, value = layer.block, layer.attention[0], layer.value[0]
    mixed = alpha @ value  # [H, n, d_h]
    joined = mixed.transpose(0, 1).flatten(1)
    to_mixed = _linear(joined, *block.output(), given).unflatten(-1, (block.heads, -1)).transpose(0, 1)
    ratio = to_mixed / mixed
    half = 1.0 if rule == "cp-lrp" else 0.5
    query, key, values = block.projections()
    found = _linear(source, *values, _grouped(block, half * value * (alpha.mT @ ratio)))
    if rule == "cp-lrp":
        return found
    to_alpha = half * alpha * (ratio @ value.mT)
    q, k = layer.query[0], layer.key[0]
    product = layer.scaling * q @ k.mT
    cap = getattr(opened.config, "attn_logit_softcapping", None)
    scores = cap * torch.tanh(product / cap) if cap else product
    to_scores = scores * (to_alpha - alpha * to_alpha.sum(-1, keepdim=True))  # masked entries have α = 0
    to_ratio = layer.scaling * half * to_scores / product
    to_q, to_k = q * (to_ratio @ k), k * (to_ratio.mT @ q)
    for projection, turned, to, groups in ((query, q, to_q, block.heads), (key, k, to_k, block.groups)):
        straight = projection(source).unflatten(-1, (groups, -1)).transpose(0, 1)
        straight = straight.repeat_interleave(block.heads // groups, 0)
        to = straight * _turned_back(opened, layer, straight, to / turned)
        found = found + _linear(source, *projection, _grouped(block, to) if groups < block.heads else _joined(to))
    return found


def _grouped(block: Any, t: Tensor) -> Tensor:
    """What several heads give to a key or value that they share."""
    return _joined(t.unflatten(0, (block.groups, -1)).sum(1))


def _joined(t: Tensor) -> Tensor:
    return t.transpose(0, 1).flatten(1)


def _turned_back(opened: Any, layer: LayerTrace, straight: Tensor, t: Tensor) -> Tensor:
    """The transpose of rotary positions, by the model's own functions; nothing to do where it has none."""
    base = opened.base
    if not hasattr(base, "rotary_emb"):
        return t
    places = torch.arange(t.shape[1])[None]
    kinds = getattr(opened.config, "layer_types", None)
    by_kind = (kinds[layer.index],) if kinds and hasattr(base.rotary_emb, "layer_types") else ()
    cos, sin = (each.double() for each in base.rotary_emb(layer.x, places, *by_kind))
    width = cos.shape[-1]
    with torch.enable_grad():
        leaf = straight[..., :width].clone().requires_grad_()
        turn = sys.modules[type(base).__module__].apply_rotary_pos_emb
        (back,) = torch.autograd.grad(turn(leaf[None], leaf[None], cos, sin)[0], leaf, t[None, ..., :width])
    return torch.cat([back, t[..., width:]], -1)
