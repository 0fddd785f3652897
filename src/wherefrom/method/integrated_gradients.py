r"""Integrated gradients: the gradient averaged over the straight way from a baseline to the input.

    IG_i  =  Σ_k (e_ik − e'_ik) ∫₀¹ ∂y/∂e_ik (e' + t (e − e')) dt,        Σ_i IG_i = y(e) − y(e')

The integral is taken by Gauss–Legendre quadrature, with as many points as it takes for the sum to miss the change of
the output by less than `tolerance` of it (20 to 70 as a rule), or with `n_steps` (captum's numbers). By how much it
misses is `delta`; a large one is said. Should the output go up and down on the way, the tolerance is of all it travels.
e is the embedding module's output of the true model, put in its place by a hook, so that nothing is embedded twice;
with `layer=l` the input of block l. The baseline e' is the same sentence with every token that the tokenizer did not
add itself replaced: by the mask (ALTI; the default where the model has one), pad, unknown, a token id or a list of ids;
or "zero" for the zero vector. Of a picture every patch is painted over: by its mean colour (the default), black or
blurred; e is then what embeds the patches, and a patch's score is summed over the components of its embedding.

Sundararajan et al. (2017), Axiomatic Attribution for Deep Networks. https://arxiv.org/abs/1703.01365
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from torch import Tensor

from wherefrom.errors import warn
from wherefrom.method.base import Of, Scores, method
from wherefrom.method.baseline import Baseline, baseline_of, check_layer, rerun
from wherefrom.method.citations import SUNDARARAJAN_2017
from wherefrom.method.quadrature import Averaged, averaged
from wherefrom.model.parts import promote
from wherefrom.typecheck import least, within
from wherefrom.work import MB, BatchShape, Options, Work, graph, passes

if TYPE_CHECKING:
    from wherefrom.model import Model, OutputTrace

LARGE = 0.05  # a miss, as a part of what the output travels, that is said where n_steps are given
NOTICED = 1e-6  # a smaller miss, as a part of the output itself, is not worth a word
TYPICAL_STEPS = 40  # where it chooses their number itself, on the models inside
# Bytes of what points that run at once keep for their way back: more of them would not run faster. And of short texts:
HELD, ELSEWHERE = {"cpu": 256 * MB}, 8192 * MB
MOST = 32
SDPA = 0.5  # of a pass's graph, which is left where attention keeps no weights
REDUCE: dict[str, Callable[[Tensor], Tensor]] = {
    "dot": lambda a: a.sum(-1),
    "abs": lambda a: a.sum(-1).abs(),
    "l2": lambda a: a.norm(dim=-1),
    "abs-mean": lambda a: a.abs().mean(-1),
}


def _cost(s: BatchShape, options: Options) -> Work:
    steps = options["n_steps"] or TYPICAL_STEPS
    one = SDPA * graph(s._replace(lengths=(s.n,)))
    ways, asked = len(s.lengths), options["at_once"]
    together = max(asked, ways) if asked else max(1, min(MOST, int(HELD["cpu"] / one)))
    together = min(together, steps * ways)
    work = passes(1.4 * steps, 0)(s, options)
    return work._replace(calls=work.calls * ways / together, held=together * one)


@method(
    "integrated-gradients",
    symbols=("IG",),
    idea="gradients",
    paper=SUNDARARAJAN_2017,
    needs={"baseline", "rerun-gradients"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil", "adds-up"},
    cost=_cost,
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
def integrated_gradients(
    output: OutputTrace,
    *,
    n_steps: Annotated[int, least(1, 100_000)] | None = None,
    tolerance: Annotated[float, within(0, 1)] = 0.005,
    baseline: Baseline = "auto",
    of: Of = "auto",
    norm: Literal["dot", "abs", "l2", "abs-mean"] = "dot",
    layer: int | None = None,
    at_once: Annotated[int, least(1)] | None = None,
) -> Scores:
    """Gradients along the way from a baseline to the input; the scores sum to the change of the output.

    at_once: points of the way that are run together; by default as many as hold about 256 MB on a CPU or 8 GB on a GPU,
    and no more than 32.
    """
    states, start = _ends(output, baseline, layer)
    found = averaged(
        rerun(output, of, layer, own_attention=True),
        start,
        states,
        output.number(of).detach(),
        points=n_steps,
        tolerance=tolerance,
        together=_together(output.trace.opened, states, at_once),
    )
    opened = output.trace.opened
    jumps = opened.family.mapped and any(block.opaque for block in opened.blocks)
    _warn(found, n_steps, tolerance, states.dtype, jumps=jumps)
    parts = found.gradient * (promote(states) - promote(start)) * output.mask[..., None]
    adds_up = norm == "dot"  # norms and absolute values sum to nothing, and so miss nothing
    return Scores(REDUCE[norm](parts), delta=found.missed if adds_up else None, signed=adds_up)


def _together(opened: Model, states: Tensor, asked: int | None) -> int:
    """How many states [B, n, d] are run at once."""
    if not opened.stacks:
        return 1
    if asked is not None or not opened.family.mapped:
        return max(asked or MOST, len(states))
    shape = opened.shape((states.shape[1],))._replace(bytes=states.element_size())
    room = HELD.get(states.device.type, ELSEWHERE)
    return max(1, min(MOST, int(room / (SDPA * graph(shape)))))


def _warn(found: Averaged, n_steps: int | None, tolerance: float, dtype: torch.dtype, *, jumps: bool) -> None:
    """Say it where the worst sentence of a batch is further off than was asked. A model with experts jumps."""
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
        "the model chooses among experts, and of a choice that jumps on the way no token has a share; choose a method "
        "that follows no such way (gradient-x-input, ablation)"
        if jumps
        else "leave n_steps out, and it takes as many as it needs"
        if n_steps
        else f"use {'' if dtype == torch.float64 else 'a float64 model, '}another baseline, more steps "
        f"(n_steps={min(10 * steps, 100_000)}, as long as that takes), or a larger tolerance"
    )
    warn(
        f"integrated gradients have not converged: after {steps} steps their sum misses the change of the output "
        f"({change:.3g}) by {float(found.missed[worst]):.2g}; {advice}"
    )


def _ends(output: OutputTrace, baseline: Any, layer: int | None) -> tuple[Tensor, Tensor]:
    """The states at the input and at the baseline: [B, n, ·] each."""
    from wherefrom.model.rerun import states_at
    from wherefrom.model.sentences import collate

    check_layer(output, layer)
    opened, sentences = output.trace.opened, output.trace.batch.sentences
    changed = [baseline_of(output, each, baseline) for each in sentences]
    real, base = (states_at(opened, collate(each, opened.pad_id), layer) for each in (sentences, changed))
    return real, torch.zeros_like(real) if baseline == "zero" else base
