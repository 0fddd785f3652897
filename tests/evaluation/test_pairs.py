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


@pytest.mark.parametrize("kind", ["marian", "bart", "t5"])
def test_the_source_is_dimmed(kind: str) -> None:
    """Soft comprehensiveness by its definition, with the source's embeddings handed to the model."""
    sizes = {"vocab_size": len(TOKENIZER), **({"decoder_vocab_size": len(TOKENIZER)} if kind == "marian" else {})}
    model, example = pairs.model(kind, **sizes), EXAMPLES[0]
    names = ["soft-comprehensiveness(samples=3)", "soft-sufficiency(samples=3)"]
    run = wherefrom.evaluate([example], model, TOKENIZER, ["saliency"], names, threads=1)
    found = wherefrom.explain(example.text, model, TOKENIZER, method="saliency", target=example.target)
    source, said = (TOKENIZER(each)["input_ids"] for each in (example.text, example.target))
    prefix = [int(model.config.decoder_start_token_id), *said[:-1]]
    with torch.no_grad():
        words = model.get_encoder().get_input_embeddings()(torch.tensor([source]))[0]
        own = model(torch.tensor([source]), decoder_input_ids=torch.tensor([prefix])).logits[0].softmax(-1)
    if kind == "marian":  # the others scale inside of what embeds
        words = words * model.get_encoder().embed_scale

    def choices(kept: Any) -> Any:
        given = words * torch.as_tensor(kept).to(words)
        with torch.no_grad():
            found = model(inputs_embeds=given[None], decoder_input_ids=torch.tensor([prefix])).logits[0]
        return found.softmax(-1)[range(len(said)), said].numpy()

    whole = choices(np.ones(words.shape))
    np.testing.assert_allclose(whole, own[range(len(said)), said], rtol=1e-5)

    def lost(kept: Any) -> float:
        return float(np.maximum(0, whole - choices(kept)).mean())

    share = found.scores[: len(source)] / found.scores[: len(source)].max()
    draws = np.random.default_rng([0, *source, *prefix]).random((3, *words.shape))
    none = lost(np.zeros(words.shape))
    assert none > 1e-6
    gone, stay = (np.mean([lost(each < part[:, None]) for each in draws]) for part in (1 - share, share))
    assert run.mean("saliency", names[0]) == pytest.approx(gone / none, rel=1e-4)
    assert run.mean("saliency", names[1]) == pytest.approx(max(0, none - stay) / none, rel=1e-4, abs=1e-6)


def next_token(source: list[int], prefix: list[int]) -> torch.Tensor:
    """The probabilities of what comes after a prefix, by the model itself."""
    with torch.no_grad():
        return MODEL(torch.tensor([source]), decoder_input_ids=torch.tensor([prefix])).logits[0, -1].softmax(-1)


def test_after_a_prefix_the_next_token_is_measured() -> None:
    """The model's own, or the one that is named: the source goes, the prefix stays."""
    begun = [
        Example("1", "the keys to the cabinets", prefix="a cat is"),
        Example("2", "the film was good and deep", prefix="not", target="bad"),
    ]
    found = wherefrom.evaluate(begun, MODEL, TOKENIZER, ["alti"], ["aopc", "stability(against=padding)"], threads=1)
    said = found.table("examples").to_pylist()
    wanted = []
    for example, row in zip(begun, said, strict=True):
        source, written = TOKENIZER(example.text)["input_ids"], TOKENIZER(example.prefix)["input_ids"][:-1]
        prefix = [int(MODEL.config.decoder_start_token_id), *written]
        whole = next_token(source, prefix)
        target = int(whole.argmax()) if example.target is None else TOKENIZER.convert_tokens_to_ids(example.target)
        assert row["target"] == TOKENIZER.decode([target])
        assert row["probability"] == pytest.approx(float(whole[target]))
        scores = wherefrom.explain(
            {"input_ids": source, "decoder_input_ids": prefix}, MODEL, TOKENIZER, method="alti", rows="readout"
        ).scores
        own = range(1, len(source) - 1)
        order = [int(i) for i in np.argsort(-scores, kind="stable") if i in own]
        steps = [order[: max(round(k / 10 * len(own)), int(k > 0))] for k in range(11)]
        left = [next_token([t for i, t in enumerate(source) if i not in gone], prefix)[target] for gone in steps]
        wanted.append(float(whole[target]) - np.mean([float(each) for each in left]))
    assert found.mean("alti", "aopc") == pytest.approx(np.mean(wanted), rel=1e-6)
    assert found.mean("alti", "stability(against=padding)") < 1e-9


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_a_prefix_that_is_too_long_is_recorded() -> None:
    long = [Example("1", "the film", prefix="a cat " * 30), Example("2", "the film", prefix="a cat")]
    found = wherefrom.evaluate(long, MODEL, TOKENIZER, ["alti"], ["aopc"], threads=1).table("examples").to_pylist()
    assert "the prefix has 62 tokens but the model reads at most 40" in found[0]["failure"]
    assert found[1]["failure"] is None


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
