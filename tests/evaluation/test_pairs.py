"""Metrics over a source and its target: tokens of the source go, and the target is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pairs
import tiny
import wherefrom
from wherefrom.data import Example
from wherefrom.errors import WherefromError
from wherefrom.method.context_cite import random_masks
from wherefrom.metric.erasure import erasure

pytest.importorskip("pyarrow", reason="runs need the extra `eval`")
TOKENIZER = tiny.tokenizer()
MODEL = pairs.model("marian", vocab_size=len(TOKENIZER), decoder_vocab_size=len(TOKENIZER))
EXAMPLES = [
    Example("1", "the keys to the cabinets", target="a cat is good"),
    Example("2", "the film was good and deep", target="not bad"),
]


def log_p(source: list[int], said: list[int], hidden: tuple[int, ...] = ()) -> float:
    """log p of what is said, by the model itself; hidden tokens of the source are masked."""
    mask = [int(i not in hidden) for i in range(len(source))]
    prefix = [int(MODEL.config.decoder_start_token_id), *said[:-1]]
    with torch.no_grad():
        logits = MODEL(
            torch.tensor([source]), attention_mask=torch.tensor([mask]), decoder_input_ids=torch.tensor([prefix])
        ).logits[0]
    return float(logits.log_softmax(-1)[range(len(said)), said].sum())


@pytest.fixture(scope="module")
def run() -> Any:
    names = ["aopc", "log-odds", "morf", "lerf", "aopc(by=unknown)", "lds(unit=word)", "sufficiency"]
    return wherefrom.evaluate(EXAMPLES, MODEL, TOKENIZER, ["gradient-x-input", "alti"], names, threads=1)


@pytest.mark.parametrize("method", ["gradient-x-input", "alti"])
def test_the_source_goes_and_the_target_is_measured(run: Any, method: str) -> None:
    """Deleted, replaced or unseen, by the definitions."""
    wanted: dict[str, list[float]] = {"aopc": [], "log-odds": [], "morf": [], "aopc(by=unknown)": []}
    for example in EXAMPLES:
        found = wherefrom.explain(example.text, MODEL, TOKENIZER, method=method, target=example.target)
        source, said = (TOKENIZER(each)["input_ids"] for each in (example.text, example.target))
        own = [i for i in range(len(source)) if not found.special[i]]
        order = [int(i) for i in np.argsort(-found.scores, kind="stable") if i in own]
        steps = [order[: max(round(k / 10 * len(own)), int(k > 0))] for k in range(11)]
        deleted = [log_p([t for i, t in enumerate(source) if i not in gone], said) for gone in steps]
        unseen = [log_p(source, said, tuple(gone)) for gone in steps]
        blank = TOKENIZER.unk_token_id
        replaced = [log_p([blank if i in gone else t for i, t in enumerate(source)], said) for gone in steps]
        wanted["aopc"].append(np.exp(deleted[0]) - np.exp(deleted).mean())
        wanted["log-odds"].append(np.mean(deleted) - deleted[0])
        wanted["morf"].append(np.mean(unseen) - unseen[0])
        wanted["aopc(by=unknown)"].append(np.exp(replaced[0]) - np.exp(replaced).mean())
    for name, each in wanted.items():
        assert run.mean(method, name) == pytest.approx(np.mean(each), rel=1e-6, abs=1e-12), name


def test_alone_as_in_a_batch(run: Any) -> None:
    names = ["aopc", "morf", "sufficiency"]
    each = [wherefrom.evaluate([example], MODEL, TOKENIZER, ["alti"], names, threads=1) for example in EXAMPLES]
    for name in names:
        assert run.mean("alti", name) == pytest.approx(np.mean([one.mean("alti", name) for one in each]), abs=1e-9)


def test_one_explanation_is_measured_too(run: Any) -> None:
    found = [wherefrom.explain(each.text, MODEL, TOKENIZER, method="alti", target=each.target) for each in EXAMPLES]
    curves = erasure([each.text for each in EXAMPLES], found, MODEL, TOKENIZER)
    assert np.mean([curve.aopc for curve in curves]) == pytest.approx(run.mean("alti", "aopc"), abs=1e-12)
    with pytest.raises(WherefromError, match="deleting what the decoder writes"):
        erasure(EXAMPLES[0].text, found[0], MODEL, TOKENIZER, protocol="attcat-code")


def test_context_cite_leaves_out_parts_of_the_source() -> None:
    """Weights of a surrogate that is fitted to runs of the model itself without some words."""
    example = EXAMPLES[0]
    found = wherefrom.explain(
        example.text, MODEL, TOKENIZER, method="context-cite(unit=word, n_masks=40, alpha=1e-6)", target=example.target
    )
    source, said = (TOKENIZER(each)["input_ids"] for each in (example.text, example.target))
    assert not found.scores[len(source) :].any()
    masks, words = random_masks(5, 40, 0.5, 0), range(1, 6)
    log = [log_p([t for i, t in enumerate(source) if i not in words or mask[i - 1]], said) for mask in masks]
    odds = np.array(log) - np.log1p(-np.exp(log))
    weights = np.linalg.lstsq(np.column_stack([masks, np.ones(40)]), odds, rcond=None)[0][:-1]
    np.testing.assert_allclose(found.scores[1:6], weights, atol=1e-3)
    assert found.surrogate["correlation"] > 0


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(WherefromError, match="no row of given has a target"):
        wherefrom.evaluate(["the film"], MODEL, TOKENIZER, ["alti"], ["morf"], threads=1)
    with pytest.raises(WherefromError, match="a target text of its own"):
        wherefrom.evaluate(EXAMPLES, MODEL, TOKENIZER, ["alti"], ["morf"], target="good", threads=1)
