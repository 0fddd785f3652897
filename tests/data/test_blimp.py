"""Cues by the structure of the paradigm, on sentences whose cue a person has marked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import golden
from wherefrom.data import read
from wherefrom.data.blimp import PARADIGMS, PROMPTS, annotate
from wherefrom.data.example import Example
from wherefrom.data.rows import prompt
from wherefrom.data.sources import SOURCES
from wherefrom.data.tables import BadRow
from wherefrom.errors import WherefromError

# Paradigm, the good sentence with its cue in <> and its target in {}, the foil.
MARKED = [
    ("ana", "<Many teenagers> were helping {themselves}.", "herself"),
    ("ana", "<Tonya> thought about {herself}.", "themselves"),
    ("ana", "<The Impressionists> like {themselves}.", "itself"),
    ("ana", "<A lot of waitresses> haven't sounded like {themselves}.", "himself"),
    ("ana", "<Harvard University> can't hurt {itself}.", "themselves"),
    ("dna", "Jeffrey hasn't passed {these} <museums>.", "this"),
    ("dna", "Leslie skated around {this} art <gallery>.", "these"),
    ("dnaa", "Sara noticed {these} white <hospitals>.", "this"),
    ("dnaa", "Those children question {those} out in the open <boys>.", "that"),
    ("darn", "The <pictures> of Martha {do}n't disgust Anne.", "does"),
    ("darn", "The newspaper <articles> about Monet {are}n't boring this actress.", "is"),
    ("darn", "A <print> of a lot of turtles {does}n't disgust most drivers.", "do"),
    ("rpsv", "<Kristen> {has} fixed this chair.", "have"),
    ("rpsv", "A lot of <children> {respect} most waiters.", "respects"),
    ("rpsv", "Winston <Churchill> {was}n't touring that lake.", "were"),
]


@pytest.mark.parametrize(("short", "marked", "foil"), MARKED)
def test_target_foil_and_cue_are_found(short: str, marked: str, foil: str) -> None:
    bare = marked.replace("<", "").replace(">", "")
    target = bare[bare.index("{") + 1 : bare.index("}")]
    good, bad = bare.replace("{", "").replace("}", ""), bare.replace("{" + target + "}", foil)
    found = annotate(PARADIGMS[short], good, bad)
    assert (found.target, found.foil) == (target, foil)
    assert [found.text[a:b] for a, b in found.cues] == [marked[marked.index("<") + 1 : marked.index(">")]]
    assert found.text.count("[MASK]") == 1
    assert found.number == (
        "plural" if target in {"themselves", "these", "those", "do", "are", "respect"} else "singular"
    )
    assert found.attractors == (short == "darn")


@pytest.mark.parametrize(
    ("short", "good", "bad", "why"),
    [
        ("ana", "Help themselves.", "Help herself.", "no subject"),
        ("dna", "He saw these", "He saw this", "no noun"),
        ("darn", "The pictures do fall.", "The pictures does fall.", "no 'of' or 'about'"),
        ("rpsv", "Has it?", "Have it?", "no subject"),
        ("rpsv", "He has it.", "They have it.", "differ in 2 words"),
    ],
)
def test_other_structures_are_refused(short: str, good: str, bad: str, why: str) -> None:
    with pytest.raises(BadRow, match=why):
        annotate(PARADIGMS[short], good, bad)


def test_only_the_five_paradigms_are_read(tmp_path: Path) -> None:
    file = tmp_path / "blimp" / "test.csv"
    file.parent.mkdir()
    file.write_text(
        "sentence_good,sentence_bad,paradigm\nWho left?,Left who?,adjunct_island\n"
        f"Ann has left.,Ann have left.,{PARADIGMS['rpsv']}\nAnn saw this man.,Ann saw these man.,{PARADIGMS['dna']}\n"
    )
    assert [example.id for example in read("blimp", folder=tmp_path)] == ["test:2", "test:3"]
    assert [example.id for example in read("blimp:dna", folder=tmp_path)] == ["test:3"]
    assert [example.id for example in read(f"blimp:{PARADIGMS['rpsv']}", folder=tmp_path)] == ["test:2"]
    with pytest.raises(WherefromError, match="blimp has no group 'island'; its groups: ana, dna, dnaa, darn, rpsv"):
        read("blimp:island", folder=tmp_path)


@pytest.mark.parametrize(
    ("short", "good", "bad", "text", "target", "cue"),
    [
        ("aga", "Mark hasn't hurt himself.", "Mark hasn't hurt itself.", "Mark has not hurt", "himself", "Mark"),
        ("asp", "Jo isn't looked at by men.", "Jo isn't looked at by cups.", "Jo is not looked at by", "men", "looked"),
        ("dna", "That man saw these cats.", "That man saw these cat.", "That man saw these", "cats", "these"),
        ("dnaai", "Men broke this lost foot.", "Men broke this lost feet.", "Men broke this lost", "foot", "this"),
        ("npi", "Even Tara had really baked.", "Even Tara had ever baked.", "Even Tara had", "really", "Even"),
        ("ipsv", "Those radii have left.", "Those radii has left.", "Those radii", "have", "radii"),
    ],
)  # fmt: skip
def test_a_prompt_ends_where_the_word_is_asked_for(
    short: str, good: str, bad: str, text: str, target: str, cue: str
) -> None:
    row = {"sentence_good": good, "sentence_bad": bad, "paradigm": PROMPTS[short]}
    found = SOURCES["blimp-prompts"].make("test:1", row, SOURCES["blimp-prompts"].columns, ())
    assert (found.text, found.target, [text[a:b] for a, b in found.cues]) == (text, target, [cue])
    assert found.label is None


def test_what_decides_must_stand_before_the_word() -> None:
    late = Example("1", "Ann saw [MASK] men.", target="these", cues=((15, 18),))
    with pytest.raises(BadRow, match="does not stand before"):
        prompt(late)


@pytest.mark.skipif(not (golden.SHARED / "data" / "blimp").is_dir(), reason="BLiMP does not lie beside this checkout")
def test_of_blimp_itself_no_row_is_lost() -> None:
    short = {name: each for each, name in PARADIGMS.items()}
    count = Counter[str]()
    for example in read("blimp", folder=golden.SHARED / "data"):
        assert isinstance(example.text, str)
        assert example.group is not None
        count[example.group] += 1
        ((start, end),) = example.cues
        mask = example.text.index("[MASK]")
        assert start > mask if short[example.group] in ("dna", "dnaa") else end < mask
        cue = example.text[start:end]
        assert cue[-1].isalpha()
        assert " " not in cue or short[example.group] == "ana"
    assert count == dict.fromkeys(short, 1000)
