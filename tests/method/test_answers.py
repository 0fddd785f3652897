"""An answer inside a text: its edges compete with the tokens of their own sentence, and move when one is deleted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.result.explanation import Explanation

TOKENIZER = tiny.tokenizer()
PAIRS = [("good ?", "the film"), ("is the film good ?", "the deep and meaningful film is not very good !")]


def explained(inputs: Any, model: Any, method: str, **asked: Any) -> Any:
    return wherefrom.explain(inputs, model, TOKENIZER, method, **asked)


@pytest.mark.parametrize("target", ["end", "answer"])  # the start: in test_output
@pytest.mark.parametrize("method", ["saliency", "ablation"])
def test_padding_takes_no_probability_from_an_answer(method: str, target: str) -> None:
    model = tiny.model(task="question-answering", dtype=torch.float64)
    asked: dict[str, Any] = {"target": target, "of": "probability"}
    together = explained(PAIRS, model, method, **asked)
    for pair, found in zip(PAIRS, together, strict=True):
        alone = explained(pair, model, method, **asked)
        assert np.abs(found.scores - alone.scores).max() <= 1e-10 * np.abs(alone.scores).max()


def test_deleting_moves_the_edges_and_leaves_them_there() -> None:
    """Neither edge can be deleted; of any other token the answer's new places are looked up."""
    model = tiny.model(task="question-answering", dtype=torch.float64)
    encoding = TOKENIZER(*PAIRS[1])
    found = explained(PAIRS[1], model, "ablation", target="answer", position=5, by="delete")
    assert isinstance(found, Explanation)
    start, end = found.target.index, found.target.end
    assert start is not None
    assert end is not None

    def probability(left: list[int]) -> float:
        inputs = {name: torch.tensor([[values[i] for i in left]]) for name, values in encoding.items()}
        with torch.no_grad():
            out = model(**inputs)
        first, last = out.start_logits[0].softmax(-1), out.end_logits[0].softmax(-1)
        return float(first[left.index(start)] * last[left.index(end)])

    every = list(range(len(found)))
    for i in every:
        kept = found.special[i] or i in (start, end)
        expected = 0.0 if kept else probability(every) - probability([j for j in every if j != i])
        assert found.scores[i] == pytest.approx(expected, abs=1e-12)
    assert start < end  # two tokens that are never deleted, beside the tokenizer's own
