"""The agreement grammar: what is promised of its sentences, seen in the sentences themselves."""

from __future__ import annotations

from collections import Counter

import pytest
from transformers import AutoTokenizer

from wherefrom import zoo
from wherefrom.data import Example, grammar, read
from wherefrom.errors import WherefromError

ALL = [*grammar.PARADIGMS, "distractor=1", "anaphor=2", "subject-verb=3"]


@pytest.fixture(scope="module")
def vocabulary() -> dict[str, int]:
    words: dict[str, int] = AutoTokenizer.from_pretrained(zoo.path("wherefrom/mlm")).get_vocab()
    return words


def words_of(example: Example) -> list[str]:
    assert isinstance(example.text, str)
    return example.text.split()


@pytest.mark.parametrize("name", ALL)
def test_every_paradigm_makes_its_sentences(name: str, vocabulary: dict[str, int]) -> None:
    data = read(f"grammar:{name}")
    examples = list(data)
    assert len(examples) == len({example.text for example in examples}) == grammar.COUNT
    assert len({example.id for example in examples}) == grammar.COUNT
    assert Counter(example.label for example in examples) == {"singular": 1000, "plural": 1000}
    paradigm, _, number = name.partition("=")
    wanted = {int(number)} if number else set(grammar.PARADIGMS[paradigm].attractors)
    assert {example.attractors for example in examples} == wanted
    for example in examples:
        words = words_of(example)
        assert words.count("[MASK]") == 1
        assert example.target != example.foil
        cues = [str(example.text)[start:end] for start, end in example.cues]
        assert set(cues) <= set(words)
        for word in [example.target, example.foil, *cues]:
            assert word in vocabulary
        assert example.group == paradigm


def numbers() -> dict[str, int]:
    """Every noun by its number, 0 or 1."""
    nouns = {*grammar.PEOPLE, *grammar.THINGS, *grammar.HIM, *grammar.HER}
    return {pair[number]: number for pair in nouns for number in (0, 1)}


@pytest.mark.parametrize("name", ALL)
def test_the_cue_has_the_number_and_attractors_the_other(name: str) -> None:
    """Read back from the text: nouns before the mask (after it, for determiners) that are no cue are attractors."""
    number = numbers()
    marking = {word: i for i, words in enumerate(grammar.DETERMINERS) for word in words}
    singular = {"himself", "herself", "this", "that", *(verb[0] for verb, _ in (*grammar.OF_ALL, *grammar.OF_PEOPLE))}
    for example in read(f"grammar:{name}"):
        words, mask = words_of(example), words_of(example).index("[MASK]")
        wanted = 0 if example.target in singular else 1
        assert grammar.NUMBERS[wanted] == example.label
        cues = [str(example.text)[start:end] for start, end in example.cues]
        assert all({**number, **marking}.get(cue, 0) == wanted for cue in cues)  # a name is singular
        if example.group in ("determiner", "adjective"):
            assert cues == [word for word in words[mask:] if word in number]
            continue
        before = words[:mask]
        others = [word for word in before if (word in number or word in marking) and word not in cues]
        assert len(others) == example.attractors
        assert all(number[word] == 1 - wanted for word in others)


def test_splits_share_nothing_and_seeds_decide() -> None:
    for name in grammar.PARADIGMS:
        train = {example.text for example in read(f"grammar:{name}", "train")}
        assert len(train) == grammar.COUNT
        assert not train & {example.text for example in read(f"grammar:{name}", "test")}
    first = list(grammar.examples("anaphor", 50, seed=1))
    assert first == list(grammar.examples("anaphor", 50, seed=1))
    assert first != list(grammar.examples("anaphor", 50, seed=2))


def test_the_whole_is_its_parts() -> None:
    whole = read("grammar")
    assert len(whole) == len(grammar.PARADIGMS) * grammar.COUNT
    assert list(whole) == [example for name in grammar.PARADIGMS for example in read(f"grammar:{name}")]
    # Written down, so that a change of the grammar is noticed: runs made before could not be gone on with.
    assert whole.fingerprint.startswith("82a57c2b3c276c68")


@pytest.mark.parametrize(
    ("source", "split", "why"),
    [
        ("grammar:verb", None, "no paradigm 'verb'; expected one of anaphor, determiner"),
        ("grammar:distractor=7", None, "'7' attractors; expected a number from 0 to 3"),
        ("grammar:determiner=1", None, "determiner has no attractors"),
        ("grammar", "dev", "no split 'dev'; expected test or train"),
    ],
)
def test_unknown_splits_and_paradigms_are_refused(source: str, split: str | None, why: str) -> None:
    with pytest.raises(WherefromError, match=why):
        read(source, split)


def test_it_does_not_repeat_itself() -> None:
    with pytest.raises(WherefromError, match="fewer than 20000 sentences of anaphor"):
        list(grammar.examples("anaphor", 20_000))
