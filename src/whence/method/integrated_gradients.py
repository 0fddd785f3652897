r"""Integrated gradients: the gradient averaged over the straight way from a baseline to the input.

    IG_i  =  Σ_k (e_ik − e'_ik) ∫₀¹ ∂y/∂e_ik (e' + t (e − e')) dt,        Σ_i IG_i = y(e) − y(e')

The integral is captum's, by Gauss–Legendre quadrature with `n_steps` points; by how much the sum misses is `delta`. e
is the embedding module's output of the true model, put in its place by a hook, so that nothing is embedded twice;
with `layer=l` the input of block l. The baseline e' is the same sentence with every token that the tokenizer did not
add itself replaced: by the mask (ALTI; the default where the model has one), pad, unknown, a token id or a list of
ids; or "zero" for the zero vector.

Sundararajan et al. (2017), Axiomatic Attribution for Deep Networks. https://arxiv.org/abs/1703.01365
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from whence.errors import WhenceError
from whence.extras import need
from whence.method.citations import SUNDARARAJAN_2017
from whence.method.registry import Scores, method

if TYPE_CHECKING:
    from whence.model import OutputTrace, Sentence, Trace

BASELINES = {"mask": "mask_token_id", "pad": "pad_token_id", "unknown": "unk_token_id"}
REDUCE: dict[str, Callable[[Tensor], Tensor]] = {
    "dot": lambda a: a.sum(-1),
    "abs": lambda a: a.sum(-1).abs(),
    "l2": lambda a: a.norm(dim=-1),
    "abs-mean": lambda a: a.abs().mean(-1),
}


@method(
    "integrated-gradients",
    symbols=("IG",),
    paper=SUNDARARAJAN_2017,
    needs="n_steps forward and backward passes (extra captum)",
    kind="scores",
    signed=True,
    class_specific=True,
    blocks=False,
)
def integrated_gradients(
    output: OutputTrace,
    *,
    n_steps: int = 100,
    baseline: Any = "auto",
    of: str = "logit",
    norm: str = "dot",
    layer: int | None = None,
    batch_size: int = 32,
) -> Scores:
    """Gradients along the way from a baseline to the input; the scores sum to the change of the output."""
    captum = need("captum.attr", extra="captum")
    if isinstance(n_steps, bool) or not isinstance(n_steps, int) or n_steps < 1:
        raise WhenceError(f"n_steps is {n_steps!r}; expected a whole number, at least 1")
    if not isinstance(norm, str) or norm not in REDUCE:
        raise WhenceError(f"unknown norm {norm!r}; expected one of {', '.join(REDUCE)}")
    states, start = _ends(output, baseline, layer)
    size = len(states)
    run = rerun(output, of, layer, own_attention=True)
    found = captum.IntegratedGradients(run).attribute(
        states,
        start,
        additional_forward_args=(torch.arange(size),),
        n_steps=n_steps,
        internal_batch_size=max(batch_size, size) if output.trace.opened.stacks else 1,
    )
    with torch.no_grad():
        change = output.number(of) - run(start, torch.arange(size))
    found = found.detach() * output.mask[..., None]
    return Scores(REDUCE[norm](found), delta=found.sum((1, 2)) - change, signed=norm == "dot")


def _ends(output: OutputTrace, baseline: Any, layer: int | None) -> tuple[Tensor, Tensor]:
    """The states at the input and at the baseline: [B, n, ·] each."""
    from whence.model.inputs import collate
    from whence.model.rerun import states_at

    check_layer(output, layer)
    opened, sentences = output.trace.opened, output.trace.batch.sentences
    changed = [_baseline(output, each, baseline) for each in sentences]
    real, base = (states_at(opened, collate(each, opened.pad_id), layer) for each in (sentences, changed))
    return real, torch.zeros_like(real) if baseline == "zero" else base


def swapped(output: OutputTrace, baseline: Any) -> Iterator[Trace]:
    """The pass on the sentences, and the pass on their baselines."""
    from whence.model.capture import capture
    from whence.model.inputs import collate

    opened, sentences = output.trace.opened, output.trace.batch.sentences
    yield capture(opened, collate(sentences, opened.pad_id))
    yield capture(opened, collate([_baseline(output, each, baseline) for each in sentences], opened.pad_id))


def check_layer(output: OutputTrace, layer: int | None) -> None:
    if layer is None:
        return
    output.trace.opened.need_blocks("layer=")
    depth = output.trace.opened.depth
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < depth:
        raise WhenceError(f"layer is {layer!r}; expected a block from 0 to {depth - 1}, or None for the embeddings")


def _baseline(output: OutputTrace, sentence: Sentence, baseline: Any) -> Sentence:
    tokenizer = output.trace.opened.tokenizer
    if isinstance(baseline, Sequence) and not isinstance(baseline, str):
        if len(baseline) != len(sentence):
            raise WhenceError(f"{len(baseline)} tokens in baseline for a sentence of {len(sentence)}; expected as many")
        return replace(sentence, ids=[int(i) for i in baseline])
    if baseline == "zero":
        return sentence
    names = ("mask", "pad", "unknown") if baseline == "auto" else (baseline,)
    if isinstance(baseline, int) and not isinstance(baseline, bool):
        blank: int | None = baseline
    elif all(name in BASELINES for name in names):
        known = [getattr(tokenizer, BASELINES[name], None) for name in names]
        blank = next((token for token in known if token is not None), None)
    else:
        raise WhenceError(f"unknown baseline {baseline!r}; expected {', '.join(BASELINES)}, zero, or token ids")
    if blank is None:
        raise WhenceError(
            f"{output.trace.opened.name} has no {' or '.join(names)} token for a baseline; pass baseline='zero', a "
            f"token id or a list of token ids"
        )
    if not 0 <= blank < output.trace.opened.vocabulary_size:
        raise WhenceError(f"baseline {blank} is outside the vocabulary of {output.trace.opened.vocabulary_size}")
    ids = [token if special else blank for token, special in zip(sentence.ids, sentence.special, strict=True)]
    return replace(sentence, ids=ids)


def rerun(
    output: OutputTrace, of: str, layer: int | None, *, own_attention: bool = False
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function from states [R, n, ·] and their sentences [R] to the explained numbers [R]."""
    from whence.model.rerun import from_layer

    trace = output.trace

    def run(states: Tensor, rows: Tensor) -> Tensor:
        batch = trace.batch.take(rows)
        found = from_layer(trace.opened, batch, layer, states, own_attention=own_attention)
        return output.towards([output.answers[int(row)] for row in rows]).number(of, found, batch.lengths)

    return run
