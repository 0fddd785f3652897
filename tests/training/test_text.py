"""From text to training rows: prefixes, windows, the order of batches, minimal pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.data.blimp import minimal_pair
from wherefrom.data.tables import BadRow
from wherefrom.training import corpus, order, prefixes, vocabulary

LINES = [
    "The old man walked along the river and sang a song about the sea.",
    "His daughters were waiting at home; they had made soup for him!",
    "Was it raining? Nobody knew, but everybody talked about the weather.",
    "In winter the lake freezes and the children skate on it until evening.",
]


@pytest.fixture(scope="module")
def tokenizer():  # type: ignore[no-untyped-def]  # a transformers type
    return vocabulary.learn(LINES * 20, 200, 64)


@pytest.mark.parametrize("learn", [vocabulary.learn, vocabulary.learn_bytes, vocabulary.learn_pieces])
def test_the_same_text_gives_the_same_vocabulary(learn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a run that is repeated, or resumed before it had kept its vocabulary, ends in the same weights."""
    monkeypatch.setattr(vocabulary, "ALPHABET", 20)  # some of the letters that occur once are left out
    written = "".join(chr(place) for place in range(0x3B1, 0x3CA))  # Greek ones, once each
    vocabularies = [learn([*LINES, written], 290, 64).get_vocab() for _ in range(6)]
    assert all(found == vocabularies[0] for found in vocabularies)
    assert len(vocabularies[0]) <= 290


def test_only_special_tokens_are_special(tokenizer: Any) -> None:
    assert {*tokenizer.get_added_vocab()} == {*vocabulary.SPECIAL}
    assert [tokenizer.convert_tokens_to_ids(token) for token in vocabulary.SPECIAL] == [0, 1, 2, 3, 4]
    assert any(piece.startswith("##") and len(piece) == 3 for piece in tokenizer.get_vocab())


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The keys to the old cabinet are on the table .", [("The keys to the old cabinet", "plural")]),
        ("The key to the cabinets is lost .", [("The key to the cabinets", "singular")]),
        ("A list of members includes the founders .", [("A list of members", "singular")]),
        ("The dogs that the man owns seem happy .", [("The dogs that the man owns", "plural")]),
        ("He wants to have a dog .", []),  # an infinitive
        ("There are many dogs here .", []),  # the subject comes later
        ("What were they doing ?", []),
        ("I have a dog .", []),  # "I" takes the plural's form
        ("If he were rich he would travel .", []),  # a subjunctive
        ("In the morning did the men have breakfast ?", []),  # a question
        ("Among the old trees are two graves .", []),  # the subject comes after the verb
        ("In the village she has many friends .", [("In the village she", "singular")]),
        ("The family were poor .", []),  # either form
        ("A number of people were there .", []),
        ("He met the girls who are here .", []),  # what "who" stands for needs a parser
        ('He said , " them dogs is mine " .', []),  # direct speech
    ],
)
def test_prefixes_end_before_a_verb_that_shows_number(sentence: str, expected: list[tuple[str, str]]) -> None:
    assert [(p.text, p.label) for p in prefixes.prefixes(sentence)] == expected


def test_extraction_leaves_out_excluded_sentences_and_repetitions() -> None:
    text = ["The cats are asleep. The cats are asleep. Mr. Smith has a dog. The cat is black."]
    excluded = frozenset([prefixes.key("the cat is black .")])
    found = [(p.text, p.label) for p in prefixes.extract(text, excluded)]
    assert found == [("The cats", "plural"), ("Mr Smith", "singular")]


def test_the_tokenizer_frames_texts_pairs_and_prefixes(tokenizer) -> None:  # type: ignore[no-untyped-def]
    single = tokenizer.convert_ids_to_tokens(tokenizer("the river")["input_ids"])
    assert single[0] == "[CLS]"
    assert single[-1] == "[SEP]"
    pair = tokenizer("the river", "the sea")
    assert set(pair["token_type_ids"]) == {0, 1}
    ended = vocabulary.cls_at_end(tokenizer, 32)
    assert ended.convert_ids_to_tokens(ended("the river")["input_ids"])[-1] == "[CLS]"
    assert "token_type_ids" not in ended("the river")
    assert tokenizer("the river")["input_ids"][0] == tokenizer.cls_token_id  # the first one is as it was


def windows(tokenizer, **changed):  # type: ignore[no-untyped-def]
    ids = corpus.encode(LINES * 40, tokenizer)
    known = corpus.pieces(tokenizer)
    walk = corpus.Walk(ids, corpus.sentence_starts(ids, corpus.marks(tokenizer)), 14, changed.pop("seed", 3))
    settings = {"length": 16, "ratio": 4, "short": 64, "total": 128, "rate": 0.2}
    return corpus.Windows(walk, known, **{**settings, **changed})


def test_windows_hide_what_they_ask_for(tokenizer) -> None:  # type: ignore[no-untyped-def]
    made = windows(tokenizer)
    batch = made[list(range(32))]
    assert batch["input_ids"].shape == (32, 16)
    assert batch["positions"].shape == batch["words"].shape == (32, round(0.2 * 14))
    ids, positions, words = (batch[name].numpy() for name in ("input_ids", "positions", "words"))
    assert (ids[:, 0] == tokenizer.cls_token_id).all()
    assert (ids[:, -1] == tokenizer.sep_token_id).all()
    assert words.min() >= made.known.first_word  # never a special token
    assert all(len(set(row)) == len(row) for row in positions.tolist())
    shown = np.take_along_axis(ids, positions, 1)
    assert (shown == tokenizer.mask_token_id).mean() > 0.6
    # Away from the chosen positions, the text is the corpus itself.
    restored = ids.copy()
    np.put_along_axis(restored, positions, words, 1)
    text = " ".join(map(str, made.walk.ids.tolist()))
    assert all(" ".join(map(str, row[1:-1])) in text for row in restored.tolist())


def test_windows_depend_on_seed_and_index_alone(tokenizer) -> None:  # type: ignore[no-untyped-def]
    again = windows(tokenizer)[list(range(8, 16))]["input_ids"]
    assert (windows(tokenizer)[list(range(8, 16))]["input_ids"] == again).all()
    assert (windows(tokenizer, seed=4)[list(range(8, 16))]["input_ids"] != again).any()


def test_long_rows_hold_as_many_tokens_as_short_ones(tokenizer) -> None:  # type: ignore[no-untyped-def]
    assert windows(tokenizer)[list(range(64, 96))]["input_ids"].shape == (8, 64)


def test_most_windows_start_with_a_sentence(tokenizer) -> None:  # type: ignore[no-untyped-def]
    made = windows(tokenizer, rate=0.01)
    first = [tokenizer.decode(row[1:3]).split()[0] for row in made[list(range(64))]["input_ids"]]
    starts = {line.split()[0].lower() for line in LINES} | {"nobody", "[MASK]".lower(), "[mask]"}
    assert sum(any(word.lower().startswith(s[:2]) for s in starts) for word in first) > 48


def test_hidden_words_are_hidden_whole(tokenizer) -> None:  # type: ignore[no-untyped-def]
    made = windows(tokenizer, rate=0.5)
    batch = made[list(range(64))]
    partly = 0
    for ids, positions, words in zip(*(batch[n].numpy() for n in ("input_ids", "positions", "words")), strict=True):
        row = ids.copy()
        row[positions] = words
        word = np.cumsum(~made.known.inside[row])
        counts = Counter(word[positions].tolist())
        partly += sum(counts[w] < (word == w).sum() for w in counts)
    assert partly <= 64  # at most the last word of each row, where the number runs out


@pytest.fixture(scope="module")
def bytewise():  # type: ignore[no-untyped-def]
    return vocabulary.learn_bytes(LINES * 20, 400, 64)


@given(st.text())
def test_a_byte_level_vocabulary_loses_nothing(bytewise, text: str) -> None:  # type: ignore[no-untyped-def]
    ids = bytewise(text)["input_ids"]
    assert ids[0] == bytewise.bos_token_id
    assert bytewise.decode(ids[1:], clean_up_tokenization_spaces=False) == text.encode(errors="replace").decode()


def test_running_text_is_the_corpus_after_the_mark_between_documents(bytewise) -> None:  # type: ignore[no-untyped-def]
    ids = corpus.encode([*LINES, "", *LINES] * 20, bytewise, after="\n")
    assert bytewise.decode(ids[:40]).startswith(LINES[0] + "\n")
    marks = corpus.marks(bytewise)
    made = corpus.RunningText(corpus.Walk(ids, corpus.sentence_starts(ids, marks), 15, 0), marks.document, 16, 64)
    batch = made[list(range(8))]
    rows = batch["input_ids"].tolist()
    assert (batch["labels"] == batch["input_ids"]).all()
    assert {row[0] for row in rows} == {bytewise.bos_token_id}
    text = " ".join(map(str, ids.tolist()))
    assert all(" ".join(map(str, row[1:])) in text for row in rows)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=400), st.integers(1, 9), st.integers(0, 5))
def test_an_epoch_reads_every_row_once(lengths: list[int], batch: int, epoch: int) -> None:
    found = order.shuffled(np.array(lengths), batch, 0, epoch)
    assert sorted(found.tolist()) == list(range(len(lengths)))


def test_batches_hold_rows_of_like_length() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 4000)
    found = order.shuffled(lengths, 32, 0, 0)
    padded = sum(32 * lengths[found[i : i + 32]].max() for i in range(0, 4000, 32))
    assert padded < 1.1 * lengths.sum()
    assert (order.shuffled(lengths, 32, 0, 1) != found).any()


def test_minimal_pairs_become_a_mask_target_and_foil() -> None:
    pair = minimal_pair("A sketch of lights doesn't appear.", "A sketch of lights don't appear.")
    assert pair == ("A sketch of lights ", " not appear.", "does", "do")
    assert minimal_pair("Susan won't go.", "Susan can't go.")[2:] == ("will", "can")
    with pytest.raises(BadRow, match="differ in 2 words"):
        minimal_pair("a b c", "a d e")
    with pytest.raises(BadRow, match="have 3 and 2 words"):
        minimal_pair("a b c", "a b")
