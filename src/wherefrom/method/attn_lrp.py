r"""Relevance propagation for Transformers: a token's share of the logit, from value and gradient in a frozen pass.

    R_i  =  Σ_k e_ik ∂ỹ/∂e_ik            ỹ: the model, its norms' scales and activations' ratios constant, and

                        attn-lrp                                    cp-lrp
    α V                 half to α, half to V                        all to V, α is constant
    softmax             its own gradient                            –
    q · k               half to q, half to k                        –
    g(gate) ⊙ up        half to each                                all to up, g(gate) is constant
    router · expert     half to each, the router by its gradient    all to the expert

Sums, projections, rotary positions and what serves several heads are linear and need no rule; a soft-cap is an
activation. This is the efficient form in which the authors' own LXT computes the rules with ε → 0; LXT differs by its
1e-10 beside z (g(z) / z here has its limit at z = 0), and changes classes for the whole process.

It does not add up to the logit, and does not promise to: `arrived` says what part arrives. Biases keep theirs, and so
does, with attn-lrp, the softmax. cp-lrp of a model without biases adds up. Contrasts are exact: both are linear in what
they start from, so that with a foil the scores are those of the target less those of the foil.

e_i is what the embedding module gives for token i; with `at="word"` the word embedding alone, as LXT has it, where the
positions' share is lost (GPT-2, BERT). The same at the input of block l is `layer_scores[l]`.

`epsilon` and `gamma` are LRP's rules for the matrices of the blocks (model/matrices.py), for where relevance is noisy:
the paper has γ for vision; text needs neither.

**A patent.** The README of LXT says that LRP is patented and free for personal and scientific use only. Whether that
concerns you is for you to find out before you use these methods for anything else.

Achtibat et al. (2024), AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers.
https://arxiv.org/abs/2402.05602
Ali et al. (2022), XAI for Transformers: Better Explanations through Conservative Propagation.
https://arxiv.org/abs/2202.07304
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from wherefrom.method.base import Scores, method
from wherefrom.method.citations import ACHTIBAT_2024, ALI_2022
from wherefrom.method.gradients import Place
from wherefrom.method.normalise import part_of, stacked
from wherefrom.method.propagated import HALVES, VALUES, frozen_gradients, frozen_trace
from wherefrom.model.frozen_pass import Freezing, Shares
from wherefrom.model.parts import promote
from wherefrom.patents import PATENTED_IDEA
from wherefrom.typecheck import least
from wherefrom.work import passes

if TYPE_CHECKING:
    from wherefrom.model import OutputTrace

AtLeastZero = Annotated[float, least(0)]


@method(
    "attn-lrp",
    symbols=("AttnLRP",),
    idea=PATENTED_IDEA,
    paper=ACHTIBAT_2024,
    needs={"frozen-pass", "linear-values"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil"},
    cost=passes(1.3, 1),
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
def attn_lrp(
    output: OutputTrace, *, at: Place = "embeddings", epsilon: AtLeastZero = 0.0, gamma: AtLeastZero = 0.0
) -> Scores:
    """Relevance propagated through attention weights and values, half to each (AttnLRP)."""
    return _relevance(output, HALVES, at, Freezing(epsilon, gamma))


@method(
    "cp-lrp",
    symbols=("CP-LRP",),
    idea=PATENTED_IDEA,
    paper=ALI_2022,
    needs={"frozen-pass", "linear-values"},
    checks={"batch-equals-single", "token-permutation", "sign-flips-with-foil"},
    cost=passes(1.2, 1),
    kind="scores",
    signed=True,
    additive=True,
    class_specific=True,
)
def cp_lrp(
    output: OutputTrace, *, at: Place = "embeddings", epsilon: AtLeastZero = 0.0, gamma: AtLeastZero = 0.0
) -> Scores:
    """Relevance propagated through values alone, attention weights and gates being constants (CP-LRP)."""
    return _relevance(output, VALUES, at, Freezing(epsilon, gamma))


def _relevance(output: OutputTrace, shares: Shares, at: Place, how: Freezing) -> Scores:
    trace, found = frozen_trace(output, how), frozen_gradients(output, shares, how)
    e, g = {"embeddings": (trace.embeddings, found.embeddings), "word": (trace.words, found.words)}[at]
    scores = (promote(e.detach()) * g).sum(-1)
    layers = [(layer.x.detach() * g).sum(-1) for layer, g in zip(trace.layers, found.hidden, strict=False)]
    return Scores(scores, stacked(layers) if layers else None, arrived=part_of(scores, found.number))
