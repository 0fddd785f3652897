"""Several numbers of one pass, explained side by side: the same as one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tiny
import wherefrom
from wherefrom.model import backward, collate, open_model, output
from wherefrom.model.capture import capture

TOKENIZER = tiny.tokenizer()
PROMPT = [2, 5, 8, 15, 3, 30]
TEXTS = ["the film is not good", "a very deep and good film was not bad ."]
GENERATING = [
    "saliency",
    "gradient-x-input(at=word)",
    "attcat",
    "attn-lrp",
    "attn-lrp(epsilon=0.1, gamma=0.2)",
    "cp-lrp",
    "decompx",
    "deeplift(baseline=7)",
    "attention-gradients",
]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def speaking(request: pytest.FixtureRequest) -> Any:
    shape = {"num_hidden_layers": 2} if request.param == "llama" else {"n_layer": 2}
    return open_model(tiny.model(request.param, "causal-lm", dtype=torch.float64, eos_token_id=None, **shape))


def at_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "at_once", lambda _trace: count)


def said(model: Any, method: str) -> Any:
    return wherefrom.generate(PROMPT, model, method=method, max_new_tokens=5, do_sample=False).scores


def agree(found: Any, expected: Any) -> bool:
    return bool(np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("method", GENERATING)
def test_tokens_of_an_answer(speaking: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if method == "decompx" and speaking.family.name == "gpt2":
        method = "decompx(bias=none)"  # which goes back
    at_once(1, monkeypatch)
    expected = said(speaking, method)
    at_once(3, monkeypatch)
    assert agree(said(speaking, method), expected)


def test_tokens_of_an_answer_through_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = open_model(tiny.model("mixtral", "causal-lm", dtype=torch.float64, num_hidden_layers=2, eos_token_id=None))
    found = said(model, "decompx(bias=none)")
    at_once(1, monkeypatch)
    assert agree(found, said(model, "decompx(bias=none)"))


@pytest.mark.parametrize(
    ("task", "method"),
    [
        ("classification", "gradient-x-input"),
        ("classification", "attcat(of=probability)"),
        ("classification", "deeplift"),
        ("token-classification", "saliency(of=log-probability)"),
        ("token-classification", "cp-lrp"),
        ("question-answering", "gradient-x-input"),
        ("question-answering", "attn-lrp"),
    ],
)
def test_every_class_of_a_padded_batch(task: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model("bert", task, dtype=torch.float64, num_hidden_layers=2)
    where = {"position": 2} if task == "token-classification" else {}

    def explained(texts: Any) -> list[Any]:
        found = wherefrom.explain(texts, model, TOKENIZER, method=method, target="all", **where)
        return [[each.scores for each in of_text.values()] for of_text in found]

    together = explained(TEXTS)
    at_once(1, monkeypatch)
    for alone, text in zip(together, TEXTS, strict=True):
        (expected,) = explained([text])
        assert len(alone) == len(expected) == 3
        assert all(agree(*each) for each in zip(alone, expected, strict=True))


# What is done ---------------------------------------------------------------------------------------------


def ways_back(monkeypatch: pytest.MonkeyPatch, stacks: bool = True) -> list[bool]:
    """Every way back that is taken from now on, and whether it is that of a stack."""
    own, found = torch.autograd.grad, list[bool]()

    def grad(*args: Any, **kwargs: Any) -> Any:
        found.append(kwargs.get("is_grads_batched", False))
        if found[-1] and not stacks:
            raise RuntimeError("vmap: no rule for this operation")
        return own(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", grad)
    return found


@pytest.mark.parametrize("method", ["saliency", "cp-lrp"])
def test_one_way_back_through_the_head_and_one_through_the_blocks(
    speaking: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(speaking, method)  # limits of activations are known from now on
    taken = ways_back(monkeypatch)
    at_once(2, monkeypatch)
    said(speaking, method)
    assert taken[-4:] == [False, True, True, False]  # five tokens: two, two and one


def test_an_operation_that_takes_no_stack(speaking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = said(speaking, "saliency")
    ways_back(monkeypatch, stacks=False)
    assert agree(said(speaking, "saliency"), expected)


class Mixing(nn.Linear):
    """A head that reads the token before as well."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return super().forward(states + states.roll(1, -2))


class Skipping(nn.Linear):
    """A head that reads the words past all blocks."""

    words: Any = None

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return super().forward(states + self.words)


@pytest.mark.parametrize("head", [Mixing, Skipping])
def test_heads_that_are_not_of_each_token_by_itself(head: type[nn.Linear]) -> None:
    made = tiny.model("llama", "causal-lm", dtype=torch.float64, num_hidden_layers=1)
    opened = open_model(made, prove=False)
    sentences, _ = opened.reader().read([PROMPT])
    trace = capture(opened, collate(sentences, opened.pad_id), grad=True)
    made.lm_head.__class__, made.lm_head.words = head, trace.words
    logits = made.lm_head(trace.layers[-1].raw["output"])
    numbers = [logits[:, row, 7] for row in (3, 4, 5)]
    given = backward.ways(trace, numbers, [[3], [4], [5]])
    found = backward.taken_back(trace, given, range(3), [trace.words])
    for number, (gradient,) in zip(numbers, found, strict=True):
        (expected,) = torch.autograd.grad(number.sum(), trace.words, retain_graph=True)
        assert agree(gradient.numpy(), expected.numpy())


def test_as_many_at_once_as_memory_bears() -> None:
    opened = open_model(tiny.model("llama", "causal-lm", num_hidden_layers=2), prove=False)
    sentences, _ = opened.reader().read([PROMPT])
    trace = capture(opened, collate(sentences, opened.pad_id), grad=True)
    largest = 4 * 6 * max(4 * 6, 4 * 24)  # float32, tokens, and all heads' weights or an FFN's units for each
    assert backward.at_once(trace) == backward.LARGEST["cpu"] // largest
