"""LRP a second time, slowly: one sentence, plain Hugging Face modules, each rule by autograd as its authors do it.

Rules of Chefer et al. (2021) with α = 1, β = 0. Nothing of wherefrom is used: the inputs of blocks and head come from
hooks on an ordinary forward pass, the parts of a block from its own attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The linear layers of each head, in order.
HEADS = {
    ("bert", "classification"): ("bert.pooler.dense", "classifier"),
    ("bert", "masked-lm"): ("cls.predictions.transform.dense", "cls.predictions.decoder"),
    ("ernie", "classification"): ("ernie.pooler.dense", "classifier"),
    ("roberta", "classification"): ("classifier.dense", "classifier.out_proj"),
    ("roberta", "masked-lm"): ("lm_head.dense", "lm_head.decoder"),
    ("electra", "classification"): ("classifier.dense", "classifier.out_proj"),
    ("electra", "masked-lm"): ("generator_predictions.dense", "generator_lm_head"),
    ("distilbert", "classification"): ("pre_classifier", "classifier"),
    ("distilbert", "masked-lm"): ("vocab_transform", "vocab_projector"),
    ("albert", "classification"): ("albert.pooler", "classifier"),
    ("albert", "masked-lm"): ("predictions.dense", "predictions.decoder"),
    ("gpt2", "classification"): ("score",),
    ("gpt2", "causal-lm"): ("lm_head",),
}
for _task in ("classification", "masked-lm"):
    HEADS |= {(other, _task): HEADS["roberta", _task] for other in ("xlm-roberta", "camembert")}
ONE_LAYER = {"token-classification": ("classifier",), "question-answering": ("qa_outputs",)}
PROJECTIONS = {"electra": "electra.embeddings_project", "albert": "albert.encoder.embedding_hidden_mapping_in"}


# The rules ------------------------------------------------------------------------------------------------


def divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b == 0, torch.zeros_like(a), a / (b + 1e-9))


def simple(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], relevance: Tensor) -> list[Tensor]:
    """x ⊙ ∂(function)/∂x applied to R ⊘ function(x): the rule of everything that has no rule of its own."""
    with torch.enable_grad():
        leaves = [each.detach().clone().requires_grad_() for each in inputs]
        result = function(*leaves)
        gradients = torch.autograd.grad(result, leaves, divide(relevance, result.detach()))
    return [leaf.detach() * gradient for leaf, gradient in zip(leaves, gradients, strict=True)]


def linear(x: Tensor, weight: Tensor, relevance: Tensor) -> Tensor:
    """weight [out, in]: positive parts meet positive parts, negative ones negative ones."""
    parts = (x.clamp(min=0), x.clamp(max=0))
    to = simple(lambda p, n: F.linear(p, weight.clamp(min=0)) + F.linear(n, weight.clamp(max=0)), parts, relevance)
    return to[0] + to[1]


def matmul(a: Tensor, b: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    to_a, to_b = simple(torch.matmul, (a, b), relevance)
    return to_a / 2, to_b / 2


def add(a: Tensor, b: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    to = simple(torch.add, (a, b), relevance)
    sums = [float(each.sum()) for each in to]
    whole = sum(map(abs, sums))
    shares = [abs(each) / (whole + 1e-9) * float(relevance.sum()) if whole else 0.0 for each in sums]
    scaled = [each * (share / (own + 1e-9) if own else 0.0) for each, share, own in zip(to, shares, sums, strict=True)]
    return scaled[0], scaled[1]


def clone(x: Tensor, *relevances: Tensor) -> Tensor:
    to = torch.zeros_like(x)
    for relevance in relevances:
        to = to + divide(relevance, x)
    return x * to


# The model ------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Of one block; every projection as a weight [out, in] and a bias."""

    q: tuple[Tensor, Tensor]
    k: tuple[Tensor, Tensor]
    v: tuple[Tensor, Tensor]
    o: tuple[Tensor, Tensor]
    first: tuple[Tensor, Tensor]
    second: tuple[Tensor, Tensor]
    act: Callable[[Tensor], Tensor]
    norm1: nn.Module
    norm2: nn.Module
    heads: int
    pre_norm: bool = False


def _of(module: Any) -> tuple[Tensor, Tensor]:
    weight = module.weight.detach()
    return (weight if isinstance(module, nn.Linear) else weight.T), module.bias.detach()


def parts(block: Any) -> Parts:
    if hasattr(block, "attn"):  # GPT-2
        weight, bias = _of(block.attn.c_attn)
        q, k, v = zip(weight.chunk(3, 0), bias.chunk(3), strict=True)
        rest = (_of(block.attn.c_proj), _of(block.mlp.c_fc), _of(block.mlp.c_proj), block.mlp.act)
        return Parts(q, k, v, *rest, block.ln_1, block.ln_2, block.attn.num_heads, True)
    if hasattr(block, "sa_layer_norm"):  # DistilBERT
        a, f = block.attention, block.ffn
        projections = (_of(a.q_lin), _of(a.k_lin), _of(a.v_lin), _of(a.out_lin), _of(f.lin1), _of(f.lin2))
        return Parts(*projections, f.activation, block.sa_layer_norm, block.output_layer_norm, a.n_heads)
    if hasattr(block, "full_layer_layer_norm"):  # ALBERT
        a = block.attention
        projections = (_of(a.query), _of(a.key), _of(a.value), _of(a.dense), _of(block.ffn), _of(block.ffn_output))
        norms = (a.LayerNorm, block.full_layer_layer_norm)
        return Parts(*projections, block.activation, *norms, a.num_attention_heads)
    a, out = block.attention.self, block.attention.output
    dense = (_of(out.dense), _of(block.intermediate.dense), _of(block.output.dense))
    norms = (out.LayerNorm, block.output.LayerNorm)
    act = block.intermediate.intermediate_act_fn
    return Parts(_of(a.query), _of(a.key), _of(a.value), *dense, act, *norms, a.num_attention_heads)


def block_down(p: Parts, x: Tensor, hidden: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """One block, x [n, d] and hidden [n, n] (True where attention may not look): relevance of x and of α [H, n, n]."""

    def split(t: Tensor) -> Tensor:
        return t.reshape(len(t), p.heads, -1).transpose(0, 1)

    def join(t: Tensor) -> Tensor:
        return t.transpose(0, 1).reshape(len(x), -1)

    read = p.norm1(x) if p.pre_norm else x
    q, k, v = (split(F.linear(read, *each)) for each in (p.q, p.k, p.v))
    root = q.shape[-1] ** 0.5
    alpha = (q @ k.transpose(1, 2) / root).masked_fill(hidden, float("-inf")).softmax(-1)
    z = alpha @ v
    o = F.linear(join(z), *p.o)
    u = x + o
    past = u if p.pre_norm else p.norm1(u)
    fed = p.norm2(u) if p.pre_norm else past
    inner = p.act(F.linear(fed, *p.first))
    f = F.linear(inner, *p.second)

    to_f, to_past = add(f, past, relevance)
    to_fed = linear(fed, p.first[0], linear(inner, p.second[0], to_f))
    to_o, to_x = add(o, x, clone(past, to_fed, to_past))
    to_alpha, to_v = matmul(alpha, v, split(linear(join(z), p.o[0], to_o)))
    mask = torch.zeros_like(alpha).masked_fill(hidden, -10000.0)
    _, to_scores = add(mask, q @ k.transpose(1, 2) / root, to_alpha)
    to_q, to_k = matmul(q, k.transpose(1, 2), to_scores)
    to_read = clone(
        read,
        linear(read, p.q[0], join(to_q)),
        linear(read, p.k[0], join(to_k.transpose(1, 2))),
        linear(read, p.v[0], join(to_v)),
    )
    return clone(x, to_read, to_x), to_alpha


class Found(NamedTuple):
    attention: Tensor  # [L, H, n, n]
    inputs: Tensor  # relevance of each block's input, summed over d: [L, n]
    embeddings: Tensor  # [n]


@torch.no_grad()
def relevance(
    model: Any, ids: list[int], head: tuple[str, ...], position: int, index: int, visible: list[int] | None = None
) -> Found:
    """From output `index` of the head, read at `position`."""
    kind = model.config.model_type
    calls: list[tuple[Any, Tensor]] = []
    entered: dict[str, Tensor] = {}
    names = [*head, *([PROJECTIONS[kind]] if kind in PROJECTIONS else [])]
    inside = "attn" if kind == "gpt2" else "attention"
    blocks = [m for m in model.modules() if hasattr(m, inside) and type(m).__name__.endswith(("Layer", "Block"))]
    handles = [b.register_forward_pre_hook(lambda m, a: calls.append((m, a[0][0]))) for b in blocks]

    def note(name: str) -> Any:
        module = model.get_submodule(name)
        return module.register_forward_pre_hook(lambda _, a: entered.update({name: a[0][0]}))

    handles += [note(name) for name in names]
    model(torch.tensor([ids]), attention_mask=torch.tensor([visible or [1] * len(ids)]))
    for handle in handles:
        handle.remove()

    weights = [model.get_submodule(name).weight.detach() for name in head]
    last = entered[head[-1]]
    to: Tensor = torch.zeros(*last.shape[:-1], len(weights[-1]), dtype=last.dtype)
    to[(index,) if to.ndim == 1 else (position, index)] = 1
    for name, weight in zip(reversed(head), reversed(weights), strict=True):
        to = linear(entered[name], weight, to)
    if to.ndim == 1:  # the head has chosen a token
        spread = torch.zeros(len(ids), len(to), dtype=to.dtype)
        spread[position] = clone(entered[head[0]], to)
        to = spread

    hidden = torch.zeros(len(ids), len(ids), dtype=torch.bool)
    if kind == "gpt2" and getattr(model.config, "is_causal", True):
        hidden |= torch.ones_like(hidden).triu(1)
    if visible is not None:
        hidden |= torch.tensor(visible)[None] == 0
    attention, inputs = [], []
    for block, x in reversed(calls):
        to, alpha = block_down(parts(block), x, hidden, to)
        attention.append(alpha)
        inputs.append(to.sum(-1))
    if kind in PROJECTIONS:
        name = PROJECTIONS[kind]
        to = linear(entered[name], model.get_submodule(name).weight.detach(), to)
    return Found(torch.stack(attention[::-1]), torch.stack(inputs[::-1]), to.sum(-1))
