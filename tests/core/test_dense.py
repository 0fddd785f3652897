"""BigBird: its own forward pass changes it for good when the text is short, and leaves tokens out when it is long."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import tiny
import wherefrom
from wherefrom.errors import TooLong

MOST = 28  # (5 + 2 * 1 random block) * 4
SHORT, LONG = [2, *range(5, 25), 3], [2, *range(5, 50), *range(5, 50), 3]


def bigbird(**more: Any) -> Any:
    shape = {**tiny.SHAPE, "max_position_embeddings": 128, "block_size": 4, "num_random_blocks": 1, **more}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("big_bird", **shape, initializer_range=0.5)
    return transformers.AutoModelForSequenceClassification.from_config(config).eval()


def said(model: Any, ids: list[int]) -> torch.Tensor:
    """What a model that has read nothing before says of a text."""
    with torch.no_grad():
        logits: torch.Tensor = copy.deepcopy(model)(input_ids=torch.tensor([ids])).logits
    return logits.softmax(-1)[0]


@pytest.mark.parametrize("method", ["cp-lrp", "gradient-x-input", "alti", "ablation", "deeplift"])
def test_a_short_text_leaves_the_model_as_it_was(method: str) -> None:
    model = bigbird()
    modules, long = list(model.modules()), said(model, LONG)
    found = wherefrom.explain(SHORT, model, tiny.tokenizer(), method=method)
    assert model.bert.attention_type == "block_sparse"
    assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
    torch.testing.assert_close(torch.tensor(list(found.probabilities.values())), said(model, SHORT))
    torch.testing.assert_close(said(model, LONG), long)


def test_it_is_the_model_itself_that_is_explained_when_its_weights_change() -> None:
    model = bigbird()
    opened = wherefrom.open_model(model)
    before = wherefrom.explain(SHORT, opened, method="cp-lrp", target=0).probabilities
    with torch.no_grad():
        model.classifier.out_proj.bias[0] += 1
    after = wherefrom.explain(SHORT, opened, method="cp-lrp", target=0).probabilities
    assert after["LABEL_0"] > before["LABEL_0"]
    torch.testing.assert_close(torch.tensor(list(after.values())), said(model, SHORT))


def test_a_text_of_which_it_leaves_tokens_out_is_too_long() -> None:
    model = bigbird()
    sparse, dense = said(model, LONG), bigbird(attention_type="original_full")
    with pytest.raises(TooLong, match=f"at most {MOST}; .*attention_type='original_full'"):
        wherefrom.explain(LONG, model)
    whole = torch.tensor(list(wherefrom.explain(LONG, dense).probabilities.values()))  # as the refusal advises
    torch.testing.assert_close(whole, said(dense, LONG))
    assert (whole - sparse).abs().max() > 1e-3  # another answer: the two were not to be confused
    assert len(wherefrom.explain(LONG[:MOST], model)) == MOST


def test_one_that_has_read_a_short_text_attends_to_all() -> None:
    model = bigbird()
    model(input_ids=torch.tensor([SHORT]))
    found = wherefrom.explain(LONG, model)
    torch.testing.assert_close(torch.tensor(list(found.probabilities.values())), said(model, LONG))


class Voting(nn.Module):
    """Somebody's own head on the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = bigbird().bert
        self.vote = nn.Linear(tiny.SHAPE["hidden_size"], 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> SimpleNamespace:
        return SimpleNamespace(logits=self.vote(self.encoder(input_ids, attention_mask)[0][:, 0]))


def test_inside_a_module_of_ones_own_it_stays_as_it_was_too() -> None:
    model = Voting().eval()
    found = wherefrom.explain(SHORT, model, method="gradient-x-input")
    assert model.encoder.attention_type == "block_sparse"
    torch.testing.assert_close(torch.tensor(list(found.probabilities.values())), said(model, SHORT))
    with pytest.raises(TooLong):
        wherefrom.explain(LONG, model, method="gradient-x-input")
