"""The sum of a gradient's components: an oracle, and the models in which it is zero by construction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.errors import NotDefined, Unsuited

TEXTS = ["the film is not very meaningful , and not good .", "a cat"]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def embedding_gradient(model: Any, ids: list[int], target: int) -> torch.Tensor:
    """The gradient [n, d] at the output of BERT's embedding module, by autograd alone."""
    kept = []

    def hook(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        kept.append(output.detach().requires_grad_())
        return kept[0]

    handle = model.bert.embeddings.register_forward_hook(hook)
    logit = model(torch.tensor([ids])).logits[0, target]
    handle.remove()
    (gradient,) = torch.autograd.grad(logit, kept[0])
    return gradient[0]


def test_the_sum_is_the_formulas_where_it_is_real() -> None:
    model, ids = tiny.model(dtype=torch.float64), tiny.ids(6)
    found = wherefrom.explain(ids, model, method="saliency", norm="sum", target=2)
    expected = [abs(sum(row)) for row in embedding_gradient(model, ids, 2).tolist()]
    assert found.scores == pytest.approx(expected, rel=1e-10)
    assert found.layer_scores is not None  # post-norm: attention reads every block's input without a LayerNorm


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra"])
def test_the_sum_answers_at_bert_like_embeddings(family: str, dtype: torch.dtype) -> None:
    model = tiny.model(family, dtype=dtype)
    sums, sizes = (
        wherefrom.explain(TEXTS, model, tiny.tokenizer(), method="saliency", norm=norm, target=1)
        for norm in ("sum", "l2")
    )
    for a, b in zip(sums, sizes, strict=True):
        assert a.scores.max() > 0.05 * b.scores.max()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("family", "at"), [("gpt2", "embeddings"), ("gpt2", "word"), ("bert", "word"), ("distilbert", "word")]
)
def test_the_sum_is_refused_behind_a_layer_norm(family: str, at: str, dtype: torch.dtype) -> None:
    model, tokenizer = tiny.model(family, dtype=dtype), tiny.tokenizer()
    for texts in (TEXTS, *TEXTS):  # in a padded batch, and alone
        with pytest.raises(Unsuited) as caught:
            wherefrom.explain(texts, model, tokenizer, method="saliency", norm="sum", at=at, target=1)
    assert {"LayerNorm", "norm=l2"} <= set(str(caught.value).replace(",", "").split())
    for norm in ("l2", "l1"):
        assert wherefrom.explain(TEXTS[0], model, tokenizer, method="saliency", norm=norm, at=at, target=1).scores.any()


def test_a_run_is_refused_before_its_examples() -> None:
    with pytest.raises(NotDefined, match="LayerNorm"):
        wherefrom.evaluate(TEXTS, tiny.model("gpt2"), tiny.tokenizer(), ["attention"], ["spearman:saliency(norm=sum)"])


def test_a_gradient_of_zero_is_an_answer() -> None:
    """A head that ignores its input has no gradient, which is not the LayerNorm's doing."""
    model = tiny.model()
    torch.nn.init.zeros_(model.classifier.weight)
    found = wherefrom.explain(TEXTS[0], model, tiny.tokenizer(), method="saliency", norm="sum", target=1)
    assert np.array_equal(found.scores, np.zeros(len(found)))
