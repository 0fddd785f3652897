r"""Integrated gradients: the gradient averaged over the straight way from a baseline to the input.

    IG_i  =  Σ_k (e_ik − e'_ik) ∫₀¹ ∂y/∂e_ik (e' + t (e − e')) dt,        Σ_i IG_i = y(e) − y(e')

The integral is taken by Gauss–Legendre quadrature, with as many points as it takes for the sum to miss the change of
the output by less than `tolerance` of it, or with `n_steps` (captum's numbers). By how much it misses is `delta`; a
large one is said. Should the output go up and down on the way, the tolerance is of all it travels. e is the embedding
module's output of the true model, put in its place by a hook, so that nothing is embedded twice; with `layer=l` the
input of block l. The baseline e' is the same sentence with every token that the tokenizer did not add itself replaced:
by the mask (ALTI; the default where the model has one), pad, unknown, a token id or a list of ids; or "zero" for the
zero vector.

Sundararajan et al. (2017), Axiomatic Attribution for Deep Networks. https://arxiv.org/abs/1703.01365
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from torch import Tensor

from wherefrom.errors import InvalidInput, InvalidOption, Unsuited, warn
from wherefrom.method.base import Of, Scores, method
from wherefrom.method.citations import SUNDARARAJAN_2017
from wherefrom.method.quadrature import Averaged, averaged
from wherefrom.model.parts import promote
from wherefrom.typecheck import least, shown, within

if TYPE_CHECKING:
    from wherefrom.model import OutputTrace, Sentence, Trace

# Every token of the text replaced by this one, or all tokens by these; "zero" is the zero vector.
Baseline = Literal["auto", "mask", "pad", "unknown", "zero"] | int | list[int]
LARGE = 0.05  # a miss, as a part of what the output travels, that is said where n_steps are given
NOTICED = 1e-6  # a smaller miss, as a part of the output itself, is not worth a word
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
    needs="20 to 70 forward and backward passes, or n_steps",
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
    blocks=False,
)
def integrated_gradients(
    output: OutputTrace,
    *,
    n_steps: Annotated[int, least(1, 100_000)] | None = None,
    tolerance: Annotated[float, within(0, 1)] = 0.005,
    baseline: Baseline = "auto",
    of: Of = "logit",
    norm: Literal["dot", "abs", "l2", "abs-mean"] = "dot",
    layer: int | None = None,
    at_once: Annotated[int, least(1)] = 32,
) -> Scores:
    """Gradients along the way from a baseline to the input; the scores sum to the change of the output."""
    states, start = _ends(output, baseline, layer)
    found = averaged(
        rerun(output, of, layer, own_attention=True),
        start,
        states,
        output.number(of).detach(),
        points=n_steps,
        tolerance=tolerance,
        together=max(at_once, len(states)) if output.trace.opened.stacks else 1,
    )
    _warn(found, n_steps, tolerance, states.dtype)
    parts = found.gradient * (promote(states) - promote(start)) * output.mask[..., None]
    adds_up = norm == "dot"  # norms and absolute values sum to nothing, and so miss nothing
    return Scores(REDUCE[norm](parts), delta=found.missed if adds_up else None, signed=adds_up)


def _warn(found: Averaged, n_steps: int | None, tolerance: float, dtype: torch.dtype) -> None:
    """Say it where the worst sentence of a batch is further off than was asked."""
    allowed = torch.maximum((LARGE if n_steps else tolerance) * found.travelled, NOTICED * found.largest)
    hidden = torch.zeros_like(found.hidden) if n_steps else found.hidden
    off = torch.maximum(found.missed.abs(), hidden)
    worst = int((off - allowed).argmax())
    if off[worst] <= allowed[worst]:
        return
    steps, change = found.points[worst], float(found.change[worst])
    if hidden[worst] > allowed[worst]:
        name = str(dtype).removeprefix("torch.")
        finer = "float64" if dtype == torch.float32 else "float32"
        warn(
            f"{name} rounds too coarsely for integrated gradients within a tolerance of {tolerance:g}: parts of the "
            f"way are off by {float(hidden[worst]):.2g} in all, where the output changes by {change:.3g}, and more "
            f"steps than {steps} do not mend it; use a {finer} model, or a larger tolerance"
        )
        return
    advice = (
        "leave n_steps out, and it takes as many as it needs"
        if n_steps
        else "use a float64 model, another baseline, or a larger tolerance"
    )
    warn(
        f"integrated gradients have not converged: after {steps} steps their sum misses the change of the output "
        f"({change:.3g}) by {float(found.missed[worst]):.2g}; {advice}"
    )


def _ends(output: OutputTrace, baseline: Any, layer: int | None) -> tuple[Tensor, Tensor]:
    """The states at the input and at the baseline: [B, n, ·] each."""
    from wherefrom.model.inputs import collate
    from wherefrom.model.rerun import states_at

    check_layer(output, layer)
    opened, sentences = output.trace.opened, output.trace.batch.sentences
    changed = [_baseline(output, each, baseline) for each in sentences]
    real, base = (states_at(opened, collate(each, opened.pad_id), layer) for each in (sentences, changed))
    return real, torch.zeros_like(real) if baseline == "zero" else base


def swapped(output: OutputTrace, baseline: Baseline) -> Iterator[Trace]:
    """The pass on the sentences, and the pass on their baselines."""
    from wherefrom.model.capture import capture
    from wherefrom.model.inputs import collate

    opened, sentences = output.trace.opened, output.trace.batch.sentences
    yield capture(opened, collate(sentences, opened.pad_id))
    yield capture(opened, collate([_baseline(output, each, baseline) for each in sentences], opened.pad_id))


def check_layer(output: OutputTrace, layer: int | None) -> None:
    if layer is None:
        return
    output.trace.opened.need_blocks("layer=")
    depth = output.trace.opened.depth
    if not 0 <= layer < depth:
        raise InvalidOption(
            f"layer is {shown(layer)}; expected a block from 0 to {depth - 1}, or None for the embeddings"
        )


def _baseline(output: OutputTrace, sentence: Sentence, baseline: Baseline) -> Sentence:
    from wherefrom.model.perturb import stand_in_for

    if isinstance(baseline, list):
        if len(baseline) != len(sentence):
            raise InvalidInput(
                f"{len(baseline)} tokens in baseline for a sentence of {len(sentence)}; expected as many"
            )
        return replace(sentence, embedded=[_known(output, i) for i in baseline])
    if baseline == "zero":
        return sentence
    names = ("mask", "pad", "unknown") if baseline == "auto" else (baseline,)
    blank = _known(output, baseline) if isinstance(baseline, int) else stand_in_for(output.trace.opened, *names)
    if blank is None:
        raise Unsuited(
            f"{output.trace.opened.name} has no {' or '.join(map(str, names))} token for a baseline; pass "
            f"baseline='zero', a token id or a list of token ids"
        )
    return sentence.blanked([i for i, special in enumerate(sentence.special) if not special], blank)


def _known(output: OutputTrace, token: int) -> int:
    if not 0 <= token < output.trace.opened.vocabulary_size:
        raise InvalidOption(
            f"baseline {shown(token)} is outside the vocabulary of {output.trace.opened.vocabulary_size}"
        )
    return token


def rerun(
    output: OutputTrace, of: str, layer: int | None, *, own_attention: bool = False
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function from states [R, n, ·] and their sentences [R] to the explained numbers [R]."""
    from wherefrom.model.rerun import from_layer

    trace = output.trace

    def run(states: Tensor, rows: Tensor) -> Tensor:
        batch = trace.batch.take(rows)
        found = from_layer(trace.opened, batch, layer, states, tuples=trace.tuples, own_attention=own_attention)
        return output.towards([output.answers[int(row)] for row in rows]).number(of, found, batch.lengths)

    return run
