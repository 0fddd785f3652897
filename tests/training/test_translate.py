"""A translator from scratch: pairs are read, held out and joined as they should be, and a run learns and resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerFast

import wherefrom
from wherefrom.errors import InvalidInput, InvalidOption, MissingExtra
from wherefrom.training import bleu, loop, translate, vocabulary

WORDS = {"wir": "we", "sehen": "see", "oft": "often", "nie": "never", "jetzt": "now", "den": "the", "Hund": "dog"}
WORDS |= {"Baum": "tree", "Mann": "man", "Wald": "wood", "und": "and", "einen": "a", "alten": "old", "kleinen": "small"}
SHAPE = translate.TranslatorShape(layers=1, decoder_layers=1, width=32, heads=2, vocabulary=150, dropout=0.0)
KNOWN = translate.TextPair("wir sehen jetzt den Baum.", "we see now the tree, yes.")


def pairs(count: int, seed: int = 0) -> list[translate.TextPair]:
    """German and English words in any order, translated one by one."""
    rng = np.random.default_rng(seed)
    said = [rng.choice(list(WORDS), rng.integers(3, 7)).tolist() for _ in range(count)]
    return [
        translate.TextPair(" ".join(each) + ".", " ".join(WORDS[word] for word in each) + ", yes.") for each in said
    ]


def table(path: Path, made: list[translate.TextPair]) -> Path:
    path.write_text("en\tde\n" + "".join(f"{pair.target}\t{pair.source}\n" for pair in made), encoding="utf-8")
    return path


def train(data: Path, out: Path, **changed: Any) -> loop.Trained:
    usual = {"steps": 40, "batch": 16, "checks": 4, "learning_rate": 3e-3, "beta2": 0.98, "device": "cpu"}
    run = loop.Schedule(out, **{**usual, "progress": False, "patience": 0, **changed})  # type: ignore[arg-type]
    columns = translate.PairColumns("de", "en")
    return translate.train([data], run, columns, SHAPE, length=64, held_out=0.05, test=0.05)


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    return vocabulary.learn_pieces([text for p in pairs(100) for text in (p.source, p.target)], 150, 64)


def test_what_is_held_out_shares_no_text_with_the_rest() -> None:
    made = pairs(400)
    rest, held = translate.part(made, 0.02, seed=1)
    assert len(held) == 8
    for side in ("source", "target"):
        kept = {translate.key(getattr(pair, side)) for pair in rest}
        assert not kept & {translate.key(getattr(pair, side)) for pair in held}
    assert translate.part(made, 0.02, seed=1) == (rest, held)
    with pytest.raises(InvalidInput, match="shares its source or its target"):
        translate.part([KNOWN, KNOWN], 0.5, seed=0)


def test_pieces_stand_where_their_letters_do_and_marks_may_stand_apart(words: PreTrainedTokenizerFast) -> None:
    text = "wir  sehen den Mann , jetzt ."
    found = words(text, return_offsets_mapping=True)
    pieces = words.convert_ids_to_tokens(found["input_ids"])
    assert pieces[-1] == "</s>"
    for piece, (a, b) in zip(pieces[:-1], found["offset_mapping"], strict=False):
        assert piece.strip("▁") == text[a:b].strip()
    assert found["input_ids"] == words("wir sehen den Mann, jetzt.")["input_ids"]
    assert words.decode(words(KNOWN.source)["input_ids"], skip_special_tokens=True) == KNOWN.source


def test_rows_are_joined_source_to_source_and_target_to_target(words: PreTrainedTokenizerFast) -> None:
    seen = pairs(20)
    made, inside = translate.encode(seen, words), translate.encode(translate.continuing(seen), words)
    join = translate.Concatenated(made, inside, translate.mark_ids(words), length=40)
    found = [join(made[0], np.random.default_rng(i)) for i in range(60)]
    assert 12 <= sum(row == made[0] for row in found) <= 40
    ends = 0
    for row in found:
        assert max(map(len, row.values())) <= 40
        for ids in row.values():
            assert ids.count(words.eos_token_id) == 1
            assert ids[-1] == words.eos_token_id
        source, target = (words.decode(row[name]) for name in ("input_ids", "labels"))
        assert source.count(".") == target.count(".")
        ends += source.count(".") < target.count("yes")  # a joint that cannot be seen
    assert ends > 10
    assert join(made[0], np.random.default_rng(3)) == found[3]


def test_a_batch_is_read_one_token_late() -> None:
    batch = translate.Padding(2)(
        [{"input_ids": [5, 6, 0], "labels": [7, 0]}, {"input_ids": [5, 0], "labels": [8, 9, 0]}]
    )
    assert batch["input_ids"].tolist() == [[5, 6, 0], [5, 0, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["decoder_input_ids"].tolist() == [[2, 7, 2], [2, 8, 9]]
    assert batch["labels"].tolist() == [[7, 0, -100], [8, 9, 0]]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    data = table(tmp_path / "a.tsv", pairs(10))
    with pytest.raises(InvalidOption, match="cannot be shared by 3 heads"):
        translate.marian(translate.TranslatorShape(width=32, heads=3), 64)
    with pytest.raises(InvalidOption, match="give --steps"):
        train(data, tmp_path / "out", steps=None)
    (tmp_path / "b.tsv").write_text("en\tde\nI see\t\n")
    with pytest.raises(InvalidInput, match="row 1: 'de' is empty"):
        translate.read(tmp_path / "b.tsv", translate.PairColumns("de", "en"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translate")
    outcome = train(table(folder / "a.tsv", pairs(4000)), folder / "out", steps=400, batch=32)
    assert outcome.metrics["accuracy"] > 0.9
    return folder / "out"


@pytest.mark.slow
def test_a_run_learns_and_its_folder_alone_translates_and_is_explained(trained: Path) -> None:
    report = json.loads((trained / "training.json").read_text())
    assert report["parameters"] < 100_000
    left = [json.loads(line) for line in (trained / "test.jsonl").read_text().splitlines()]
    assert set(left[0]) == {"source", "target"}
    network, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(trained), AutoTokenizer.from_pretrained(trained)
    assert tokenizer.is_fast
    assert network.lm_head.weight is network.model.shared.weight
    said = network.generate(**tokenizer(KNOWN.source, return_tensors="pt"))[0]
    assert tokenizer.decode(said, skip_special_tokens=True) == KNOWN.target
    found = bleu.translate(str(trained), [row["source"] for row in left[:4]], beams=2)
    words = [(own.split(), row["target"].split()) for own, row in zip(found, left[:4], strict=True)]
    right = [one == other for own, wanted in words for one, other in zip(own, wanted, strict=False)]
    assert sum(right) >= 0.7 * sum(
        len(wanted) for _, wanted in words
    )  # a word may be wrong: processors round otherwise
    found = wherefrom.align(KNOWN.source, KNOWN.target, str(trained))
    assert found.source == ["wir", "sehen", "jetzt", "den", "Baum", "."]


@pytest.mark.slow
def test_bleu_is_sacrebleu_s(trained: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "t.tsv", pairs(8, seed=5))
    try:
        found = bleu.measure(str(trained), data, translate.PairColumns("de", "en"), beams=1)
    except MissingExtra:
        pytest.skip("sacrebleu is not installed")
    assert found.rows == 8
    assert found.score > 80
    assert "version" in found.signature


@pytest.mark.slow
def test_a_run_that_was_killed_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = table(tmp_path / "a.tsv", pairs(1000))
    whole = train(data, tmp_path / "whole", workers=0)
    own = loop.FiniteLoss.on_log

    def killed(self: Any, args: Any, state: Any, *rest: Any, **more: Any) -> None:
        own(self, args, state, *rest, **more)
        if state.global_step >= 25:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop.FiniteLoss, "on_log", killed)
        with pytest.raises(KeyboardInterrupt):
            train(data, tmp_path / "killed")
    again = train(data, tmp_path / "killed")
    assert again.resumed
    assert again.steps == whole.steps
    for one, other in zip(
        *(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name).parameters() for name in ("whole", "killed")),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
