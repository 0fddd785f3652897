"""What a head reads is the readout row: the rows of the last block that the output depends on, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.model import capture, collate, open_model

CLASSIFIERS = transformers.models.auto.modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
KINDS: dict[str, tuple[str, dict[str, Any]]] = {**tiny.VARIANTS, **tiny.LAYOUTS}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name, (kind, _) in KINDS.items() if kind in CLASSIFIERS),
    *(("modernbert", {"classifier_pooling": pooling}) for pooling in ("cls", "mean")),
    *(("eurobert", {"classifier_pooling": pooling}) for pooling in ("bos", "mean", "late")),
    *((name, {"pad_token_id": None}) for name in ("gpt2", "llama")),
    *((name, {"num_labels": 1}) for name in ("bert", "llama", "qwen3")),  # reward models
]


def rows_that_count(model: Any, sentences: list[list[int]], position: Any = None) -> list[tuple[Any, list[int]]]:
    """For each sentence its readout, and the rows of the last block's output that the explained number depends on."""
    opened = open_model(model)
    read, _ = opened.reader().read(sentences)
    found = []
    for each in [[one] for one in read] if not opened.pads else [read]:
        trace = capture(opened, collate(each, opened.pad_id), grad=True)
        asked = [wherefrom.model.answer(opened, s, trace.output, i, position=position) for i, s in enumerate(each)]
        number = torch.stack([wherefrom.model.target.logit(opened, trace.output, i, a) for i, a in enumerate(asked)])
        (gradient,) = torch.autograd.grad(number.sum(), trace.layers[-1].raw["output"])
        for i, answer in enumerate(asked):
            counts = gradient[i].abs().sum(-1)
            found.append((answer.readout, torch.nonzero(counts > 1e-9 * counts.max()).flatten().tolist()))
    return found


@pytest.mark.parametrize(("variant", "changes"), CASES, ids=str)
def test_a_classifier_reads_its_readout_rows(variant: str, changes: dict[str, Any]) -> None:
    model = tiny.model(variant, **({} if variant == "gpt_neo" else {"num_hidden_layers": 1}), **changes)
    sentences = [tiny.ids(7), tiny.ids(4, seed=1)]
    for sentence, (readout, rows) in zip(sentences, rows_that_count(model, sentences), strict=True):
        every = list(range(len(sentence)))
        assert rows == (every if readout.position is None else [readout.position])


ONE_TOKEN = [
    (variant, task)
    for variants, language in ((("bert", "modernbert", "deberta-v2"), "masked-lm"), (("llama", "gpt2"), "causal-lm"))
    for variant in variants
    for task in ("token-classification", "question-answering", language)
]


@pytest.mark.parametrize(("variant", "task"), ONE_TOKEN)
def test_heads_that_read_one_token(variant: str, task: str) -> None:
    sentences = [tiny.ids(7), tiny.ids(4, seed=1)]
    position = 2 if task in ("token-classification", "masked-lm") else None
    for sentence, (readout, rows) in zip(
        sentences, rows_that_count(tiny.model(variant, task, num_hidden_layers=1), sentences, position), strict=True
    ):
        assert rows == [readout.position]
        assert position is None or readout.position == position
        assert task != "causal-lm" or readout.position == len(sentence) - 1


@pytest.mark.parametrize("variant", ["llama", "gpt2", "modernbert", "bert"])
def test_padding_on_either_side_changes_nothing(variant: str) -> None:
    model = tiny.model(variant, num_hidden_layers=1)
    short, long = tiny.ids(4, seed=1), tiny.ids(7)
    alone = wherefrom.explain(short, model, method="attcat").scores
    for padded, real in (([*short, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0]), ([0, 0, 0, *short], [0, 0, 0, 1, 1, 1, 1])):
        batch = {"input_ids": [long, padded], "attention_mask": [[1] * 7, real]}
        np.testing.assert_allclose(wherefrom.explain(batch, model, method="attcat")[1].scores, alone, atol=1e-6)


def test_a_head_that_reads_the_mean_is_answered_by_the_mean_of_rows() -> None:
    model = tiny.model("modernbert", classifier_pooling="mean", num_hidden_layers=2)
    found = wherefrom.explain(tiny.ids(6), model, method="alti")
    assert found.readout.position is None
    np.testing.assert_allclose(found.scores, found.aggregated[-1].mean(0), atol=1e-7)
    for keep in ("row", "scores"):  # which know the readout before the pass
        kept = wherefrom.explain(tiny.ids(6), model, method="alti", keep=keep)
        np.testing.assert_allclose(kept.scores, found.scores, atol=1e-6)


def test_a_reward_model_explains_its_one_number() -> None:
    model, ids = tiny.model("llama", num_labels=1, num_hidden_layers=1, dtype=torch.float64), tiny.ids(5)
    found = wherefrom.explain(ids, model, method="integrated-gradients", baseline=[5] * 5)
    own = [float(model(torch.tensor([each])).logits) for each in (ids, [5] * 5)]
    assert found.scores.sum() == pytest.approx(own[0] - own[1], rel=0.01)
    assert float(found.prediction) == pytest.approx(own[0], rel=1e-3)


def test_a_choice_among_several_texts_is_refused() -> None:
    config = transformers.BertConfig(**tiny.SHAPE)
    with pytest.raises(WherefromError, match="BertForMultipleChoice reads several texts at once"):
        open_model(transformers.BertForMultipleChoice(config))
