"""The maps of a batch in one array on the host, and what explanations hold of it."""

from __future__ import annotations

from itertools import chain
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.method import choose
from wherefrom.pipeline import execution, fetching
from wherefrom.pipeline.fetching import Fetching, Stack
from wherefrom.pipeline.resolution import resolve_job


def stacked(lengths: tuple[int, ...], depth: int = 3) -> tuple[Stack, torch.Tensor]:
    maps = torch.rand(depth, len(lengths), max(lengths), max(lengths), generator=torch.Generator().manual_seed(0))
    stack = Stack(lengths, depth, Fetching())
    for layer in maps:
        stack.add(layer)
    return stack, maps


@pytest.mark.parametrize(("lengths", "shared"), [((6, 5), True), ((6, 1, 1, 1), False)])
def test_a_sentence_has_a_part_of_the_array_unless_most_is_padding(lengths: tuple[int, ...], shared: bool) -> None:
    stack, maps = stacked(lengths)
    for row, n in enumerate(lengths):
        found = stack.of(row)
        assert np.array_equal(found, maps[:, row, :n, :n].numpy())
        assert np.shares_memory(found, stack.room.numpy()) == shared


def test_results_do_not_hold_more_than_a_machine_can_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_held", [fetching.PINNED + 1])
    stack, _ = stacked((6, 5))
    assert not np.shares_memory(stack.of(0), stack.room.numpy())


def test_without_its_maps_an_explanation_holds_nothing_of_the_batch() -> None:
    whole = wherefrom.explain([tiny.ids(4), tiny.ids(5)], tiny.model("bert"), method="attention", aggregate="last")[0]
    assert np.shares_memory(whole.scores, whole.maps)
    assert not np.shares_memory(whole.without_maps().scores, whole.maps)


def test_nothing_came() -> None:
    assert Stack((3,), 2, Fetching()).of(0) is None


def test_an_array_that_nobody_looked_at_is_looked_at() -> None:
    fields: dict[str, Any] = {"tokens": ["a"], "scores": np.array([np.nan]), "method": "given"}
    with pytest.raises(wherefrom.WherefromError, match="NaN"):
        wherefrom.Explanation(**fields)
    assert np.isnan(wherefrom.Explanation(**fields, known_finite=True).scores).all()


@pytest.mark.parametrize(
    ("method", "device", "longest", "free", "tokens"),
    [
        ("TransAtt", "cuda", 128, 2**40, execution.DOUBLED),
        ("TransAtt", "cuda", 512, 2**40, execution.SEVERAL * 512),
        ("TransAtt", "cuda", 512, 2**20, execution.DOUBLED),  # no room for several
        ("TransAtt", "cpu", 512, 2**40, inf),
        ("globenc", "cuda", 512, 2**40, inf),
    ],
)
def test_what_repeats_a_pass_in_float64_takes_few_tokens_at_a_time_on_a_gpu(
    method: str, device: str, longest: int, free: int, tokens: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = wherefrom.open_model(tiny.model("bert"))
    monkeypatch.setattr(execution, "free_memory", lambda _device: free)
    opened: Any = SimpleNamespace(device=torch.device(device), shape=model.shape)
    sentences: Any = [range(3), range(longest)]
    assert execution._at_once(opened, sentences, {method: resolve_job(model, choose(method))}) == tokens


def test_the_next_batch_is_begun_before_the_results_of_the_last_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny.model("bert"), [tiny.ids(n) for n in (3, 4, 5)]
    plain = wherefrom.explain(ids, model, method="globenc", batch_size=1)
    seen: list[str] = []
    for name in ("_passed", "_answered"):
        own = getattr(execution, name)
        monkeypatch.setattr(execution, name, lambda *args, own=own, name=name: seen.append(name) or own(*args))
    monkeypatch.setattr(execution, "_goes_ahead", lambda _opened, _jobs: True)
    for a, b in zip(plain, wherefrom.explain(ids, model, method="globenc", batch_size=1), strict=True):
        assert np.array_equal(a.maps, b.maps)
        assert a.prediction == b.prediction
    assert seen == ["_passed", "_passed", "_answered", "_passed", "_answered", "_answered"]


def test_an_error_of_the_next_batch_waits_for_its_turn() -> None:
    def run(which: int) -> Any:
        if which == 1:
            raise ValueError("the second")
        yield which

    found = chain.from_iterable(fetching.one_ahead(map(run, range(3))))
    assert next(found) == 0
    with pytest.raises(ValueError, match="the second"):
        next(found)
