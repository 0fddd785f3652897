"""Metrics of a language model's next word and of its answer, against their definitions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

import tiny
import wherefrom
from wherefrom.data import Example
from wherefrom.errors import RowsLeftOut, WherefromError
from wherefrom.method.context_cite import random_masks
from wherefrom.metric.soft import shares

MODEL, TOKENIZER = tiny.model("gpt2", "causal-lm", dtype=torch.float64), tiny.tokenizer()
PROMPT = Example("1", "the keys to the cabinets", target="are", foil="is", cues=((4, 8),))


@pytest.fixture(scope="module")
def plain() -> PreTrainedTokenizerFast:
    """A tokenizer that adds nothing, as most language models have."""
    found = tiny.tokenizer(model_input_names=["input_ids", "attention_mask"])
    found.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    return found


def test_cues_are_ranked_with_signs_among_the_words_of_the_text() -> None:
    names = ["cue-mrr(signs=kept, tokens=text)@scores", "cue-dot(signs=kept, tokens=text)@scores", "cue-mrr@scores"]
    run = wherefrom.evaluate([PROMPT], MODEL, TOKENIZER, ["gradient-x-input"], names, threads=1)
    found = wherefrom.explain(PROMPT.text, MODEL, TOKENIZER, method="gradient-x-input", target="are", foil="is")
    own = found.scores[1:-1]  # without [CLS] and [SEP]
    assert found.special == [True, *[False] * 5, True]
    expected = [
        1 / (1 + (np.delete(own, 1) >= own[1]).sum()),
        own[1] / np.abs(own).sum(),
        1 / (1 + (np.abs(np.delete(found.scores, 2)) >= abs(found.scores[2])).sum()),
    ]
    assert np.allclose([run.mean("gradient-x-input", name) for name in names], expected, atol=1e-6)


def log_p(ids: list[int], mask: list[int] | None, rows: list[int], said: list[int]) -> float:
    """Σ log p of these tokens, read at these places, by the model itself; places that are 0 in the mask are unseen."""
    places = torch.arange(len(ids))[None]
    seen = None if mask is None else torch.tensor([mask])
    with torch.no_grad():
        logits = MODEL(torch.tensor([ids]), attention_mask=seen, position_ids=places).logits[0]
    return float(logits.log_softmax(-1)[rows, said].sum())


def test_tokens_flipped_from_either_end(plain: PreTrainedTokenizerFast) -> None:
    """MoRF and LeRF of a phrase: the prompt's last token and the answer stay, the rest goes in the order of scores."""
    example = Example("1", "the keys to the cabinets", target="are very good")
    names = ["morf", "lerf", "lerf-morf"]
    run = wherefrom.evaluate([example], MODEL, plain, ["gradient-x-input"], names, threads=1)
    found = wherefrom.explain(example.text, MODEL, plain, method="gradient-x-input", target=example.target)
    ids = plain("the keys to the cabinets are very")["input_ids"]
    said = plain("are very good")["input_ids"]
    rows = [4, 5, 6]
    order = np.argsort(-found.scores[:4], kind="stable").tolist()
    curves = []
    for walk in (order, order[::-1]):
        taken = [max(round(k / 10 * 4), int(k > 0)) for k in range(11)]
        curve = [log_p(ids, [int(i not in walk[:k]) for i in range(7)], rows, said) for k in taken]
        curves.append(np.mean(curve) - curve[0])
    expected = [*curves, curves[1] - curves[0]]
    assert np.allclose([run.mean("gradient-x-input", name) for name in names], expected, atol=1e-6)


def test_parts_left_out(plain: PreTrainedTokenizerFast) -> None:
    """LDS and top-k drop, each run by the model itself on the sentences that are left."""
    parts, last, target = ["the film was good .", "a cat is bad .", "the key was deep ."], "the dog is", "not bad"
    example = Example("1", " ".join([*parts, last]), target=target)
    names = ["lds(n_masks=12)", "top-k-drop", "top-k-drop(k=2)"]
    run = wherefrom.evaluate([example], MODEL, plain, ["gradient-x-input"], names, threads=1)
    found = wherefrom.explain(example.text, MODEL, plain, method="gradient-x-input", target=target)
    scores = found.scores[:15].reshape(3, 5).sum(1)
    said = plain(target)["input_ids"]

    def left(stays: Any) -> float:
        ids = plain(" ".join([*(part for part, stay in zip(parts, stays, strict=True) if stay), last]))["input_ids"]
        return log_p([*ids, said[0]], None, [len(ids) - 1, len(ids)], said)

    masks = random_masks(3, 12, 0.5, 1)
    logs = np.array([left(mask) for mask in masks])
    assert run.mean("gradient-x-input", names[0]) == pytest.approx(stats.spearmanr(masks @ scores, logs).statistic)
    order = np.argsort(-scores)
    for k, name in enumerate(names[1:], 1):
        drop = left([True] * 3) - left([i not in order[:k] for i in range(3)])
        assert run.mean("gradient-x-input", name) == pytest.approx(drop, abs=1e-6)


def test_dimming_by_the_definition(plain: PreTrainedTokenizerFast) -> None:
    names = [
        "soft-sufficiency(samples=3)",
        "soft-comprehensiveness(samples=3)",
        "soft-comprehensiveness(samples=3, distance=hellinger, retain=0.5)",
    ]
    run = wherefrom.evaluate([replace(PROMPT, foil=None)], MODEL, plain, ["saliency"], names, threads=1)
    found = wherefrom.explain(PROMPT.text, MODEL, plain, method="saliency", target="are")
    ids = plain(PROMPT.text)["input_ids"]
    words = MODEL.get_input_embeddings().weight[ids]
    are = plain.convert_tokens_to_ids("are")

    def said(kept: Any) -> Any:
        with torch.no_grad():
            given = words * torch.as_tensor(kept).to(words)
            return MODEL(inputs_embeds=given[None]).logits[0, -1].softmax(-1).numpy()

    draws = np.random.default_rng([0, *ids]).random((3, len(ids), words.shape[1]))
    whole, none = said(np.ones(words.shape)), said(np.zeros(words.shape))
    share = found.scores / found.scores.max()
    scaled = shares(found.scores, 0.5)
    assert scaled.mean() == pytest.approx(0.5)
    assert (np.diff(scaled[np.argsort(share)]) >= 0).all()

    def lost(p: Any) -> float:
        return max(0.0, float(whole[are] - p[are]))

    def far(p: Any) -> float:
        return float(((np.sqrt(whole) - np.sqrt(p)) ** 2).sum() / np.sqrt(2))

    kept = np.mean([lost(said(each < share[:, None])) for each in draws])
    gone = np.mean([lost(said(each < 1 - share[:, None])) for each in draws])
    distance = np.mean([far(said(each < 1 - scaled[:, None])) for each in draws]) / far(none)
    assert lost(none) > 0.001
    assert run.mean("saliency", names[0]) == pytest.approx(max(0, lost(none) - kept) / lost(none), abs=1e-6)
    assert run.mean("saliency", names[1]) == pytest.approx(gone / lost(none), abs=1e-6)
    assert run.mean("saliency", names[2]) == pytest.approx(distance, abs=1e-6)


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_masked_words_are_not_asked_of_a_language_model(plain: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    masked = Example("1", "the keys [MASK] good", target="are", foil="is")
    with pytest.raises(WherefromError, match=r"every example of given asks for the word at .*--up-to-mask"):
        wherefrom.evaluate([masked], MODEL, plain, ["saliency"], ["lerf-morf"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    # One shard of which nothing can be explained, and one that has a number.
    names = ["lerf-morf", "lds"]
    run = wherefrom.evaluate([masked, replace(PROMPT, id="2")], MODEL, plain, ["saliency"], names, shard=1, threads=1)
    assert np.isfinite(run.mean("saliency", "lerf-morf"))
    assert "--up-to-mask" in str(run.table("examples").to_pylist()[0])


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_prompts_with_their_targets_from_a_file(plain: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """A word and its foil, a phrase, and no target: what a list of dicts and a list of examples are, too."""
    rows: list[dict[str, Any]] = [
        {"text": "the boys", "target": "are very good"},
        {"text": "the keys to the cabinets", "target": "are", "foil": "is"},
        {"text": "a cat is"},
        {"text": "a dog", "target": "is", "foil": "very good"},  # a phrase is measured by itself
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    examples = [Example(str(i), **row) for i, row in enumerate(rows)]
    found = [
        wherefrom.evaluate(data, MODEL, plain, ["saliency"], ["lerf-morf"], threads=1)
        for data in (file, rows, examples)
    ]
    assert found[0].manifest["data"]["name"] == "prompts.jsonl"
    tables = [run.table("examples").to_pylist() for run in found]
    assert ["leave the example's foil out" in str(each) for each in tables[0]] == [False, False, False, True]
    values = [[each["value"] for each in run.table("records").to_pylist()] for run in found]
    assert len(values[0]) == 3
    assert values[1] == pytest.approx(values[0])
    assert values[2] == pytest.approx(values[0])
    with pytest.raises(WherefromError, match="example 0: no column 'text' or 'image'; it has: prompt"):
        wherefrom.evaluate([{"prompt": "a cat"}], MODEL, plain, ["saliency"], ["morf"])
    with pytest.warns(RowsLeftOut, match="row 2: 'target' is 3, not text"):
        wherefrom.evaluate(["a cat", {"text": "a dog", "target": 3}], MODEL, plain, ["saliency"], ["morf"])


def test_what_is_suggested_works(plain: PreTrainedTokenizerFast) -> None:
    """A way that the model has: its mask; where the tokenizer has neither mask nor unknown token, attention."""
    for tokenizer, way in ((plain, "mask"), (unmasked(), "attention")):
        with pytest.raises(WherefromError, match=rf"let them go otherwise: aopc\(by={way}\)"):
            wherefrom.evaluate(["a cat is"], MODEL, tokenizer, ["saliency"], ["aopc"])
        run = wherefrom.evaluate(["a cat is"], MODEL, tokenizer, ["saliency"], [f"aopc(by={way})"], threads=1)
        assert np.isfinite(run.mean("saliency", f"aopc(by={way})"))
    with pytest.raises(WherefromError, match="to erase by 'mask'; choose by='attention' or by='pad' or a token id"):
        wherefrom.evaluate(["a cat is"], MODEL, unmasked(), ["saliency"], ["aopc(by=mask)"])


def unmasked() -> PreTrainedTokenizerFast:
    found = tiny.tokenizer()
    found.mask_token = found.unk_token = None
    return found


def test_what_has_no_value_says_why(plain: PreTrainedTokenizerFast) -> None:
    run = wherefrom.evaluate(
        [Example("1", "film", target="good"), Example("2", "a cat is", target="good")],
        MODEL,
        plain,
        ["gradient-x-input"],
        ["lds", "morf"],
        threads=1,
    )
    reasons = run.table("records").to_pylist()
    assert any("no part of the text" in str(each["why"]) for each in reasons if each["metric"] == "lds")
    with pytest.raises(WherefromError, match="shares of tokens"):
        wherefrom.evaluate(["a cat"], MODEL, plain, ["saliency"], ["morf(shares=[0.5, 0.1])"])
