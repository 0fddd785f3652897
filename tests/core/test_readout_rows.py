"""The readout row without the maps gives what the maps would have given, layer by layer, and holds none of them."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import traces
import wherefrom
from wherefrom.aggregate import rollout
from wherefrom.method import Scores, choose, methods
from wherefrom.pipeline import execution
from wherefrom.pipeline import readout_rows as rows
from wherefrom.pipeline.resolution import Job, resolve_job
from wherefrom.pipeline.shelf import Shelf, scores_alone
from wherefrom.result.answer import Readout

TEXTS = [tiny.ids(7), tiny.ids(4, 1), tiny.ids(1, 2)]
LAYERWISE = [each.name for each in methods() if each.by_layer]
DOUBLE: dict[str, Any] = {"dtype": torch.float64}
MODELS = {
    "llama": tiny.model("llama", "causal-lm", **DOUBLE),
    "gemma2": tiny.model("gemma2", "causal-lm", **DOUBLE),  # a norm on the branch
    "phi": tiny.model("phi", "encoder", **DOUBLE),  # parallel
    "bert": tiny.model("bert", "encoder", **DOUBLE),  # post-norm
}


def alike(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.abs(found - expected).max() <= 1e-12 * max(1.0, np.abs(expected).max()))


def check(model: Any, **asked: Any) -> None:
    """By keep="row" and keep="scores" what keep="maps" has in its readout row."""
    whole = wherefrom.explain(TEXTS, model, keep="maps", **asked)
    for one, maps in zip(wherefrom.explain(TEXTS, model, keep="row", **asked), whole, strict=True):
        assert one.maps is one.aggregated is None
        assert alike(one.layer_scores, maps.readout_rows)
        assert alike(one.scores, maps.scores)
        assert one.readout == maps.readout
    for one, maps in zip(wherefrom.explain(TEXTS, model, keep="scores", **asked), whole, strict=True):
        assert one.layer_scores is one.maps is None
        assert alike(one.scores, maps.scores)


@pytest.mark.parametrize("method", LAYERWISE)
@pytest.mark.parametrize("name", ["llama", "bert"])
def test_every_method_has_the_same_row(name: str, method: str) -> None:
    if method.startswith("hta") and name == "llama":
        pytest.skip("hta has rules for blocks like BERT's and GPT-2's")
    check(MODELS[name], method=method)


@pytest.mark.parametrize("aggregate", ["rollout", "sum", "mean", "last", "flow", None])
def test_every_aggregation_has_the_same_row(aggregate: str | None) -> None:
    check(MODELS["llama"], method="norm-residual", aggregate=aggregate)


@pytest.mark.parametrize(
    "asked",
    [
        {"position": "mean"},
        {"position": 0},
        {"head": 1, "method": "attention"},
        {"head": 1, "method": "attention", "aggregate": "sum"},
        {"layers": (1, 3)},
        {"layers": (0, 1)},
        {"normalize": True},
    ],
    ids=str,
)
def test_whatever_else_is_asked_the_row_is_the_same(asked: dict[str, Any]) -> None:
    check(MODELS["bert"], **{"method": "globenc", **asked})


def test_what_needs_all_maps_still_gives_the_row() -> None:
    check(MODELS["llama"], method="attention-rollout", receptive_field=True)
    check(MODELS["llama"], method="attention-rollout", sink="drop")
    check(tiny.model("bert", "question-answering", **DOUBLE), method="alti")  # the answer's place is not known before


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("attention", {}),
        ("attention-fixed-residual", {}),
        ("norm", {"normalize": True}),
        ("norm-fixed-residual", {}),
        ("norm-residual", {}),
        ("norm-residual-ln", {}),
        ("globenc", {}),
        *(("alti", {"metric": metric}) for metric in ("l1", "l2", "cosine")),
        *(("alti", {"at": at}) for at in ("residual", "attention", "output")),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", MODELS)
def test_a_row_by_itself_is_the_maps_row(name: str, method: str, options: dict[str, Any]) -> None:
    layer = traces.layers(model=MODELS[name])[1]
    known = next(each for each in methods() if each.name == method)
    tokens = torch.tensor([5, 2])
    assert known.row is not None
    found, maps = known.row(layer, tokens, **options), known.run(layer, **options)
    assert traces.apart(found, maps[torch.arange(2), tokens]) <= 1e-12


def test_no_layer_is_held_but_the_product() -> None:
    model, held = MODELS["llama"], []
    job = _job(model)

    class Spied(rows.ReadoutRows):
        def add(self, maps: torch.Tensor, below: torch.Tensor | None = None) -> None:
            super().add(maps, below)
            assert self.joint is not None
            held.append(sum(t.numel() for t in (self.joint, *self.found, *(size for _, size in self.sizes))))
            shapes.append(tuple(maps.shape))

    shapes: list[tuple[int, ...]] = []
    n, depth = 7, 3
    spied = Spied(job, [Readout(n - 1, "last token")], [n])
    for layer in wherefrom.capture(tiny.ids(n), model).layers:
        shelf = Shelf(job, [], rows=spied)
        execution._work(shelf, layer, [])
        assert not shelf.maps
    assert shapes == [(1, n, n), (1, n, n), (1, 1, n)]  # of the last map one row is computed
    assert max(held) <= n * n + depth * (n + 1)


def _job(model: Any) -> Job:
    from wherefrom.method import choose
    from wherefrom.model import open_model
    from wherefrom.pipeline.resolution import Wanted, resolve_job

    return resolve_job(open_model(model), choose("alti"), Wanted(keep="row"))


def _rolled(maps: np.ndarray) -> np.ndarray:
    """The last token's row of every layer of a rollout of given maps."""
    n = maps.shape[-1]
    found = rows.ReadoutRows(_job(MODELS["llama"]), [Readout(n - 1, "last token")], [n])
    for each in torch.from_numpy(maps):
        found.add(each[None])
    return found.of(0)


@pytest.mark.parametrize("size", [1e-30, 1e-9, 1e-3, 30.0, 1e7])
def test_rows_of_deep_products_stay_in_range(size: float) -> None:
    """36 layers leave the range of float32, but the shares of a row are what they were."""
    maps = (size * np.random.default_rng(0).random((36, 5, 5))).astype(np.float32)
    exact = rollout(maps.astype(np.float64) / size)[:, -1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wherefrom.WherefromWarning)
        found = _rolled(maps).astype(np.float64)
    shares = exact / exact.sum(-1, keepdims=True)
    assert np.allclose(found / found.sum(-1, keepdims=True), shares, rtol=1e-4)


def test_a_token_that_draws_on_nothing_leaves_a_row_of_zeros() -> None:
    maps = np.zeros((3, 3, 3))
    maps[:, 0, 0] = maps[:, 1, 0] = 2.0
    assert not _rolled(maps).any()
    maps[:, 2, 1] = 3.0
    assert np.array_equal(_rolled(maps), [[0, 3, 0], [6, 0, 0], [12, 0, 0]])


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_what_is_known_to_fit_is_the_result_that_is_looked_at(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where scores alone are kept, every field is the one that the whole path gives."""
    model, ids = tiny.model(kind), [tiny.ids(n) for n in (4, 7, 5)]
    asked = [(name, None) for name in ("attention-rollout", "attcat", "random", "attention")] + [("saliency", 0)]

    def explained() -> list[wherefrom.Explanation]:
        return [
            each
            for method, target in asked
            for each in wherefrom.explain(ids, model, method=method, target=target, keep="scores")
        ]

    quick = explained()
    monkeypatch.setattr(execution, "scores_alone", lambda _shelf: None)
    for fast, slow in zip(quick, explained(), strict=True):
        for name in (each.name for each in fields(wherefrom.Explanation) if each.name != "seconds"):
            mine, whole = getattr(fast, name), getattr(slow, name)
            assert np.array_equal(mine, whole) if isinstance(whole, np.ndarray) else mine == whole, name
        assert replace(fast, method="again").scores is fast.scores


@pytest.mark.parametrize(
    ("scores", "known"), [([[1.0, 2], [3, 0]], True), ([[1.0, 2], [np.nan, 0]], False), ([[1.0]], False)]
)
def test_scores_that_are_odd_are_looked_at_one_by_one(scores: list[list[float]], known: bool) -> None:
    job = replace(resolve_job(wherefrom.open_model(tiny.model("bert")), choose("attcat")), keep="scores")
    shelf = Shelf(job, [], (2, 1), scores=Scores(torch.tensor(scores)))
    found = scores_alone(shelf)
    assert (found is not None) == known
    assert found is None or [each["scores"].tolist() for each in found] == [[1, 2], [3]]
