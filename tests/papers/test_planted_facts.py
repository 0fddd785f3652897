"""Planted facts: prompts of the right length whose source is known, and recall@1 of the source."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import wherefrom
from wherefrom.data import Example
from wherefrom.errors import InvalidInput
from wherefrom.metric.base import Case
from wherefrom.metric.names import lookup
from wherefrom.papers import samples
from wherefrom.papers.fact_reader import IGNORED, draw_batch
from wherefrom.papers.planted_facts import draw_prompt, log_probability, read_sentences, without_source

SENTENCES = tuple(f"The river number {i} rises in the hills behind the town." for i in range(200))


def draw(seed: int, length: int = 128, facts: int = 1) -> Example | None:
    tokenizer = wherefrom.open_model("wherefrom/lm").tokenizer
    return draw_prompt("1", length, tokenizer, SENTENCES, random.Random(seed), facts)


@pytest.mark.parametrize("facts", [1, 3])
def test_a_prompt_states_the_fact_and_asks_for_it(facts: int) -> None:
    tokenizer = wherefrom.open_model("wherefrom/lm").tokenizer
    prompts = [prompt for seed in range(12) if (prompt := draw(seed, facts=facts)) is not None]
    assert len(prompts) > 5
    for prompt in prompts:
        ((start, end),) = prompt.cues
        stated = prompt.text[start:end]
        question = stated.removesuffix(f"{prompt.target}.")
        assert prompt.text.endswith(question)
        assert prompt.text.count(stated) == 1
        assert stated not in without_source(prompt)
        answer = tokenizer(prompt.target, add_special_tokens=False)["input_ids"]
        assert 1 <= len(answer) <= 4
        assert 100 < len(tokenizer(prompt.text + prompt.target)["input_ids"]) <= 128


def test_the_probability_of_an_answer_is_the_models() -> None:
    """Token by token, from as many passes as the answer has tokens."""
    model = wherefrom.open_model("wherefrom/lm")
    text, answer = "The secret code of Alice is 7341. The secret code of Alice is", " 7341"
    ids = model.tokenizer(text)["input_ids"]
    total = 0.0
    for token in model.tokenizer(answer, add_special_tokens=False)["input_ids"]:
        with torch.no_grad():
            logits = model.pretrained(torch.tensor([ids])).logits[0, -1].double()
        total += float(logits.log_softmax(-1)[token])
        ids = [*ids, token]
    assert log_probability(model, text, answer) == pytest.approx(total, abs=1e-4)


def test_recall_is_by_the_sentence_of_the_highest_score() -> None:
    """The question is no source, nor are the answer's own tokens."""
    text = "It is late. The code of Ann is 12. We go home. The code of Ann is"
    example = Example("1", text, target=" 12", cues=((12, 34),))
    explanation = wherefrom.explain(text, "wherefrom/lm", target=" 12", method="gradient-x-input")
    metric = lookup("source-recall")

    def recall(favorite: str) -> float:
        scores = np.zeros(len(explanation))
        for i, span in enumerate(explanation.spans):
            if span is not None and span[0] == 0:
                start = text.index(favorite)
                scores[i] = float(start <= span[1] < start + len(favorite))
                scores[i] += 5.0 * (span[1] >= text.rindex("The code"))
            else:
                scores[i] = 9.0
        (number,) = metric.measure(Case(example, replace(explanation, scores=scores)))
        return number.value

    assert recall("The code of Ann is 12.") == 1
    assert recall("We go home.") == 0


def test_the_readers_loss_is_on_the_answers() -> None:
    tokenizer = wherefrom.open_model("wherefrom/lm").tokenizer
    encoded = [tokenizer(f" {sentence}", add_special_tokens=False)["input_ids"] for sentence in SENTENCES]
    ids, labels = draw_batch(tokenizer, encoded, 160, 3, random.Random(0))
    assert ids.shape == labels.shape == (3, 160)
    for row, marks in zip(ids, labels, strict=True):
        assert torch.equal(row[marks != IGNORED], marks[marks != IGNORED])
        answers = tokenizer.decode(marks[marks != IGNORED]).replace(" ", "").strip(".").split(".")
        text = tokenizer.decode(row).replace(" ", "")
        assert len(answers) == 4
        assert all(text.count(f"is{answer}.") >= 2 for answer in answers)


def test_too_few_sentences_are_refused() -> None:
    with pytest.raises(InvalidInput):
        read_sentences(samples.own())
