"""LongRoPE: once the longest text of a batch is longer than those first trained on, all of it is turned otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import tiny
import wherefrom

END = 12
ROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 3,
    "long_factor": [4.0] * 3,
    "original_max_position_embeddings": END,
}
TEXTS = [[2, *range(5, 25)], [2, *range(8, 12)], [2, *range(5, 5 + END - 1)], [2, *range(30, 45)]]


@pytest.fixture(scope="module")
def model() -> Any:
    shape = {**tiny.PLAIN, "num_key_value_heads": 2, "original_max_position_embeddings": END, "rope_parameters": ROPE}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("phi3", **shape, initializer_range=0.5)
    return transformers.AutoModelForSequenceClassification.from_config(config).eval()


@pytest.mark.parametrize("method", ["cp-lrp", "gradient-x-input", "alti", "ablation"])
def test_a_batch_gives_what_each_text_gives(model: Any, method: str) -> None:
    together = wherefrom.explain(TEXTS, model, method=method)
    for text, found in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(found.scores, wherefrom.explain(text, model, method=method).scores, atol=1e-5)


def test_the_two_kinds_of_texts_do_differ(model: Any) -> None:
    """Padded beyond the end, a short text has another answer: what the batches above must not do."""
    short = torch.tensor([TEXTS[2]])
    alone = model(input_ids=short).logits
    padded = torch.nn.functional.pad(short, (0, 3))
    beside = model(input_ids=padded, attention_mask=(torch.arange(END + 3) < END)[None].long()).logits
    assert (alone - beside).abs().max() > 1e-3


def test_texts_on_one_side_share_a_batch(model: Any) -> None:
    opened = wherefrom.open_model(model)
    sentences, _ = opened.reader().read(TEXTS)
    assert sorted(map(sorted, opened.batches(sentences, 8))) == [[0, 3], [1, 2]]


def test_taking_tokens_away_is_measured_on_each_text_by_itself(model: Any) -> None:
    texts = ["a good film", "a good film and a good film and a good film and a good film"]
    how: dict[str, Any] = {"model": model, "tokenizer": tiny.tokenizer(), "methods": ["random"], "metrics": ["aopc"]}
    both, *alone = (wherefrom.evaluate(each, batch_size=2, **how) for each in (texts, texts[:1], texts[1:]))
    assert both.mean("random", "aopc") == pytest.approx(
        np.mean([each.mean("random", "aopc") for each in alone]), abs=1e-5
    )
