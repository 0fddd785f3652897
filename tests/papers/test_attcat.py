"""AttCAT's experiments, each recomputed from the paper's formula or the authors' notebooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.data import Example
from wherefrom.errors import NotDefined

TOKENIZER = tiny.tokenizer()
QUESTIONS = [
    Example("1", ("is the film good ?", "the deep and meaningful film is not very good !"), answer=((8, 18), (4, 18))),
    Example("2", ("what is good ?", "the cats and the dogs of the film are not good ."), answer=((4, 8),)),
]


def test_answer_precision_adds_the_scores_towards_start_and_end() -> None:
    """Σ_l (∂y/∂h^l · h^l) ā^l for the predicted start's logit, the same for the end's, and the top K of their sum."""
    model: Any = tiny.model(task="question-answering", dtype=torch.float64).eval()
    model.set_attn_implementation("eager")
    k, expected = 3, {"sum": [], "magnitudes": []}
    for example in QUESTIONS:
        encoding = TOKENIZER(*example.text, return_tensors="pt", return_offsets_mapping=True)
        offsets, sides = encoding.pop("offset_mapping")[0].tolist(), encoding.sequence_ids(0)
        out = model(**encoding, output_hidden_states=True, output_attentions=True)
        start = int(out.start_logits[0].argmax())
        end = start + int(out.end_logits[0, start:].argmax())
        by_edge = []
        for logit in (out.start_logits[0, start], out.end_logits[0, end]):
            gradients = torch.autograd.grad(logit, out.hidden_states[:-1], retain_graph=True)
            layers = zip(gradients, out.hidden_states, out.attentions, strict=False)
            by_edge.append(sum((g * h)[0].sum(-1) * a[0].mean((0, 1)) for g, h, a in layers).detach().numpy())
        spans = [(a, b) if side == 1 else (0, 0) for (a, b), side in zip(offsets, sides, strict=True)]
        answer = {i for i, (a, b) in enumerate(spans) if any(a < last and first < b for first, last in example.answer)}
        for combine, scores in (("sum", sum(by_edge)), ("magnitudes", sum(np.abs(edge) for edge in by_edge))):
            top = sorted(range(len(scores)), key=lambda i, scores=scores: -scores[i])[:k]
            expected[combine].append((len(answer & {*top}), min(k, len(answer))))
    metrics = {combine: f"answer-precision(combine={combine})@{k}" for combine in expected}
    run = wherefrom.evaluate(QUESTIONS, model, TOKENIZER, ["attcat"], list(metrics.values()), threads=1)
    for combine, name in metrics.items():
        counts, maxima = zip(*expected[combine], strict=True)
        assert run.mean("attcat", f"{name} count") == np.mean(counts)
        assert run.mean("attcat", f"{name} maximum") == np.mean(maxima)
        assert run.mean("attcat", name) == pytest.approx(np.mean(counts) / k)


def test_answer_precision_needs_a_model_that_answers() -> None:
    with pytest.raises(NotDefined, match="answers questions"):
        wherefrom.evaluate(QUESTIONS, tiny.model(), TOKENIZER, ["attcat"], ["answer-precision@3"], threads=1)
