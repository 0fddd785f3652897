"""Whether a batch is padded is told and not looked for, and every number is the one of transformers' own mask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AttentionMaskInterface, masking_utils

import tiny
import wherefrom
from wherefrom.metric import deletion, erasure
from wherefrom.model import rerun
from wherefrom.model.capture import capture
from wherefrom.model.known_padding import LOOKING, telling
from wherefrom.model.sentences import Batch, collate
from wherefrom.model.undo import borrowed

KINDS = ["bert", "roberta", "distilbert", "gpt2", "modernbert"]


def asked_of_the_device(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every mask that transformers is asked to leave out, whether it must look at one."""
    found: list[bool] = []
    for name in ("_ignore_bidirectional_mask_sdpa", "_ignore_causal_mask_sdpa"):
        own = getattr(masking_utils, name)

        def looked(padding_mask: Any, *args: Any, _own: Any = own, **kwargs: Any) -> Any:
            found.append(padding_mask is not None)
            return _own(padding_mask, *args, **kwargs)

        monkeypatch.setattr(masking_utils, name, looked)
    return found


@pytest.mark.parametrize("implementation", LOOKING)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [(5, 5), (6, 3)])
def test_the_numbers_are_those_of_a_mask_that_was_looked_at(
    kind: str, lengths: tuple[int, ...], implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny.model(kind)
    model.set_attn_implementation(implementation)
    opened = wherefrom.open_model(model)
    sentences, _ = opened.reader().read([tiny.ids(n) for n in lengths])
    batch = collate(sentences, opened.pad_id)

    def logits(batch: Batch) -> torch.Tensor:
        def run() -> Any:
            telling()
            return opened.forward(batch)

        found: torch.Tensor = borrowed(run).logits
        return found

    whole, captured = logits(replace(batch, padded=None)), capture(opened, replace(batch, padded=None))
    looks = asked_of_the_device(monkeypatch)
    assert batch.padded == (len(set(lengths)) > 1)
    assert torch.equal(logits(batch), whole)
    for own, other in zip(capture(opened, batch).layers, captured.layers, strict=True):
        assert torch.equal(own.attention, other.attention)
    assert not any(looks)


def test_a_token_that_attention_may_not_see_is_hidden_without_padding() -> None:
    opened = wherefrom.open_model(tiny.model("bert"))
    ids, mask = torch.tensor([tiny.ids(5)]), torch.tensor([[1, 1, 0, 1, 1]])
    (sentence,), _ = opened.reader().read({"input_ids": ids, "attention_mask": mask})
    batch = collate([sentence], opened.pad_id)
    assert batch.padded
    assert not capture(opened, batch).layers[0].attention[..., 2].any()


@pytest.mark.parametrize("implementation", LOOKING)
def test_erasure_looks_at_no_mask(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model("bert")
    model.set_attn_implementation(implementation)
    opened = wherefrom.open_model(model, tiny.tokenizer())
    texts = ["a good cat", "the film is not very good and not here !"]
    sentences, _ = opened.reader().read(texts)
    found = wherefrom.explain(texts, opened, method="random")
    looks = asked_of_the_device(monkeypatch)
    way = erasure.Way()
    asked = [(sentence, each, way) for sentence, each in zip(sentences, found, strict=True)]
    assert deletion.without_each(opened, asked, 512, 0.5) is not None
    assert not any(looks)


@pytest.mark.parametrize("implementation", LOOKING)
def test_transformers_has_its_mask_back(implementation: str) -> None:
    own = AttentionMaskInterface._global_mapping[implementation]
    opened = wherefrom.open_model(tiny.model("bert"))

    def fails(*_: Any) -> Any:
        assert AttentionMaskInterface._global_mapping[implementation] is not own
        raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"):
        rerun.begun_readings(opened, [3], fails, fails, 1, tokens=64, slack=0.0, own_attention=True)
    assert AttentionMaskInterface._global_mapping[implementation] is own
