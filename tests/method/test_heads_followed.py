"""Heads with something beside their chain: a pooler that nobody reads (BigBird), a bias added last (ESM)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import tiny
import wherefrom

IDS = [2, 5, 6, 7, 8, 9, 3]
MADE = {
    "big_bird": {},
    "esm": {"position_embedding_type": "absolute", "token_dropout": False, "mask_token_id": 4},
}


def made(layout: str, auto: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(layout, **tiny.SHAPE, **MADE[layout], initializer_range=0.5)
    model = auto.from_config(config).eval().double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


@pytest.mark.parametrize("layout", MADE)
def test_the_parts_add_up_to_a_words_logit(layout: str) -> None:
    model = made(layout, transformers.AutoModelForMaskedLM)
    with torch.no_grad():
        own = float(model(input_ids=torch.tensor([IDS])).logits[0, 3, 9])
    found = wherefrom.explain(
        IDS, made(layout, transformers.AutoModelForMaskedLM), method="decompx", position=3, target=9
    )
    assert found.scores.sum() == pytest.approx(own, abs=1e-9)


@pytest.mark.parametrize("layout", MADE)
def test_the_parts_add_up_to_a_class(layout: str) -> None:
    model = made(layout, transformers.AutoModelForSequenceClassification)
    with torch.no_grad():
        own = float(model(input_ids=torch.tensor([IDS])).logits[0, 1])
    again = made(layout, transformers.AutoModelForSequenceClassification)
    assert wherefrom.explain(IDS, again, method="decompx", target=1).scores.sum() == pytest.approx(own, abs=1e-9)
