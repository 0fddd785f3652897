"""When kernels in Triton are worth compiling: what is asked for, and what there is to do."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

import tiny
import wherefrom
from wherefrom.errors import InvalidOption
from wherefrom.model import compiling


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The queries that a kernel is asked to attend to, in a process that has followed nothing yet."""
    found: list[torch.Size] = []
    module = import_module("wherefrom.model.capture")  # of which a function of that name stands in the way

    def at_once(_own: Any, query: torch.Tensor, *_: Any, **_more: Any) -> None:
        found.append(query.shape)

    monkeypatch.setattr(module, "at_once", at_once)
    monkeypatch.setattr(compiling, "_pairs", [0])
    return found


def test_a_short_text_is_not_worth_it_and_many_are(asked: list[torch.Size], monkeypatch: pytest.MonkeyPatch) -> None:
    opened, text = wherefrom.open_model(tiny.model("bert")), tiny.ids(8)
    monkeypatch.setattr(compiling, "WORTH", 3 * 8 * 8)
    flags = [{layer.kernels for layer in wherefrom.capture(text, opened).layers} for _ in range(4)]
    assert flags == [{False}, {False}, {True}, {True}]
    assert len(asked) == 2 * opened.depth


def test_one_large_batch_is_worth_it(asked: list[torch.Size], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "WORTH", 3 * 8 * 8)
    wherefrom.explain([tiny.ids(8, seed) for seed in range(3)], tiny.model("bert"), method="alti")
    assert asked


@pytest.mark.parametrize("choice", ["always", "never"])
def test_who_says_so_has_them_or_not(choice: Any, asked: list[torch.Size], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = wherefrom.open_model(tiny.model("bert"), compile=choice)
    for worth in (1, 10**9):
        monkeypatch.setattr(compiling, "WORTH", worth)
        assert {layer.kernels for layer in wherefrom.capture(tiny.ids(8), opened).layers} == {choice == "always"}
    assert len(asked) == (2 * opened.depth if choice == "always" else 0)


def test_a_wrong_choice_is_refused() -> None:
    with pytest.raises(InvalidOption, match="compile"):
        wherefrom.open_model(tiny.model("bert"), compile="sometimes")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="compile cannot be given with a model that is open already"):
        wherefrom.open_model(wherefrom.open_model(tiny.model("bert")), compile="never")
