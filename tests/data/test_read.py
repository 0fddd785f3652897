"""Datasets by name and by file: what a row becomes, and what is said of rows that cannot be used."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import golden
from wherefrom.data import Dataset, Dropped, Example, known, read
from wherefrom.data.datasets import from_row
from wherefrom.data.sources import SOURCES
from wherefrom.errors import WherefromError

SHARED = golden.SHARED / "data"
real = pytest.mark.skipif(not SHARED.is_dir(), reason="the public datasets do not lie beside this checkout")

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows as `name/split.jsonl` into a folder of datasets; gives that folder."""

    def make(name: str, *rows: object, split: str = "validation") -> Path:
        file = tmp_path / name / f"{split}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return tmp_path

    return make


def only(data: Dataset) -> Example:
    (example,) = data
    return example


def pieces(example: Example, spans: tuple[tuple[int, int], ...]) -> list[str]:
    text = example.text if isinstance(example.text, str) else example.text[1]
    return [text[start:end] for start, end in spans]


def test_a_folder_that_shares_a_datasets_name_is_not_it(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write("sst2", {"sentence": "a fine film .", "label": 1})
    beside = folder / "work"
    (beside / "sst2").mkdir(parents=True)
    (beside / "sst2" / "config.json").write_text("{}")  # a model, say
    monkeypatch.chdir(beside)
    assert only(read("sst2", folder=folder)).text == "a fine film ."
    write("work/sst2", {"sentence": "another .", "label": 1})
    assert only(read("sst2", folder=folder)).text == "a fine film ."  # a folder that is named is meant
    monkeypatch.setenv("WHEREFROM_DATA", str(folder))
    assert only(read("sst2")).text == "another ."  # or else tables that lie here


def test_labels_that_some_rows_have(tmp_path: Path) -> None:
    """Also where the first has none: rows of jsonl need not have the same names."""
    with_label, without = {"text": "bad film", "label": "negative"}, {"text": "good"}
    for given in ([without, with_label], [with_label, without]):
        (tmp_path / "z.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in given), encoding="utf-8")
        assert [each.label for each in read(tmp_path / "z.jsonl")] == [each.get("label") for each in given]


def test_what_pandas_writes_for_an_empty_cell_is_none() -> None:
    pandas = pytest.importorskip("pandas")
    for empty in (float("nan"), pandas.NA, pandas.NaT, None, ""):
        found = from_row("0", 1, {"text": "the girls", "target": " are", "foil": empty})
        assert isinstance(found, Example), empty
        assert found.foil is None


def test_sentences_and_pairs(write: Write) -> None:
    folder = write("sst2", {"sentence": "a fine film .", "label": 1}, {"sentence": "hm", "label": -1})
    assert list(read("sst2", folder=folder)) == [
        Example("validation:1", "a fine film .", "positive"),
        Example("validation:2", "hm", None),  # GLUE hides a label as -1
    ]
    marks = {"Sentence2_Highlighted_1": "0,2", "Sentence2_Highlighted_2": "2", "Sentence2_Highlighted_3": "{}"}
    pair = {"Sentence1": "A cat sits .", "Sentence2": "Two dogs run .", "gold_label": "contradiction"}
    write("esnli", pair | marks)
    assert only(read("esnli", folder=folder)) == Example(
        "validation:1", ("A cat sits .", "Two dogs run ."), label="contradiction", rationale=((9, 12),)
    )
    write("mnli", {"premise": "All left.", "hypothesis": "Ann left.", "label": 0}, split="validation_matched")
    assert only(read("mnli", folder=folder)) == Example(
        "validation_matched:1", ("All left.", "Ann left."), "entailment"
    )
    write("amazon_polarity", {"title": "Good", "content": "I like it", "label": 1}, split="test")
    assert only(read("amazon", folder=folder)).text == "I like it"


def test_translations_lie_in_a_file_for_each_language(tmp_path: Path) -> None:
    (tmp_path / "multi30k").mkdir()
    german, english = (tmp_path / "multi30k" / f"test_2016_flickr.{name}" for name in ("de.gz", "en"))
    german.write_bytes(gzip.compress(b"Ein Hut.\nZwei Hunde.\n"))
    english.write_text("A hat.\nTwo dogs.\n")
    assert list(read("multi30k", folder=tmp_path)) == [
        Example("test_2016_flickr:1", "Ein Hut.", target="A hat."),
        Example("test_2016_flickr:2", "Zwei Hunde.", target="Two dogs."),
    ]
    back = read("multi30k", folder=tmp_path, columns={"text": "en", "target": "de"}, limit=1)
    assert (only(back).text, only(back).target) == ("A hat.", "Ein Hut.")
    english.write_text("A hat.\n")
    with pytest.raises(WherefromError, match="not of the same number of lines"):
        list(read("multi30k", folder=tmp_path))
    english.unlink()
    with pytest.raises(WherefromError, match="no column 'en' for its target; it has: de"):
        list(read("multi30k", folder=tmp_path))


def test_a_prefix_is_part_of_the_content_and_nothing_else_changes() -> None:
    """Runs that were begun before examples had one are still theirs."""
    plain = Example("1", "Ein Hut.", target="A hat.")
    assert plain.content == "b10455c2b5750f05"
    assert replace(plain, prefix="A").content != plain.content


def test_rows_in_erasers_format_bring_their_documents(write: Write) -> None:
    folder = write(
        "movies",
        {
            "annotation_id": "a.txt",
            "classification": "NEG",
            "query": "Is it good ?",
            "evidences": [[{"docid": "a.txt", "start_token": 2, "end_token": 4}]],
        },
        {"annotation_id": "lost", "classification": "NEG", "evidences": []},
        split="val",
    )
    (folder / "movies" / "docs").mkdir()
    (folder / "movies" / "docs" / "a.txt").write_text("a film\nso very dull .\n", encoding="utf-8")
    data = read(folder / "movies" / "val.jsonl")
    film = only(data)
    assert (film.text, film.label) == ("a film so very dull .", "NEG")
    assert pieces(film, film.rationale) == ["so very"]
    assert [each.reason for each in data.dropped] == [
        "it names the document 'lost', which is neither in docs/ nor in docs.jsonl beside the table"
    ]
    asked = read(folder / "movies" / "val.jsonl", columns={"text": "query", "pair": "text", "rationale": "rationale"})
    first = next(iter(asked))
    assert first.text == ("Is it good ?", "a film so very dull .")
    assert pieces(first, first.rationale) == ["so very"]


def test_two_documents_of_erasers_are_a_pair(write: Write) -> None:
    evidence = [[{"docid": "7_hypothesis", "start_token": 1, "end_token": 2}]]
    folder = write("snli", {"annotation_id": "7", "classification": "neutral", "evidences": evidence}, split="val")
    write(
        "snli",
        {"docid": "7_premise", "document": "A cat ."},
        {"docid": "7_hypothesis", "document": "A dog ."},
        split="docs",
    )
    both = only(read(folder / "snli" / "val.jsonl"))
    assert both.text == ("A cat .", "A dog .")
    assert pieces(both, both.rationale) == ["dog"]


def test_what_cannot_be_used_is_named(write: Write) -> None:
    folder = write(
        "qqp",
        {"question1": "Why?", "question2": "Why not?", "label": 0, "garbled": False},
        {"question1": "Wh\ufffd?", "question2": "Why not?", "label": 0, "garbled": True},
        "{broken",
        {"question1": "", "question2": "Why not?", "label": 0},
        {"question1": "Why?", "question2": "Why not?", "label": 2},
        {"question1": "Why?", "question2": "How come?", "label": "duplicate"},
        {"question2": "How come?", "label": 0},
        "[1, 2]",
    )
    data = read("qqp", folder=folder)
    assert [example.id for example in data] == ["validation:1", "validation:6"]
    assert len(data) == 2
    assert data.dropped == [
        Dropped(2, "its source was not UTF-8"),
        Dropped(3, "it is not JSON: Expecting property name enclosed in double quotes"),
        Dropped(4, "'question1' is empty"),
        Dropped(5, "label 2 is none of 2 classes: different, duplicate"),
        Dropped(7, "it has no column 'question1'"),
        Dropped(8, "it is [1, 2], not an object with named columns"),
    ]


def test_stars_become_polarity(write: Write) -> None:
    folder = write("yelp", *({"text": "x", "stars": float(n)} for n in (1, 2, 3, 4, 5)), split="test")
    data = read("yelp", folder=folder)
    assert [example.label for example in data] == ["negative", "negative", "positive", "positive"]
    assert [(each.row, each.reason[:7]) for each in data.dropped] == [(3, "3 stars")]
    write("yelp", {"text": "x", "label": 1}, split="train")  # the Hub's polarity
    assert only(read("yelp", "train", folder=folder)).label == "positive"


POST = {"tokens": ["you", "are", "a", "very", "bad", "man"], "labels": ["offensive", "normal", "offensive"]}


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 0]], ["very bad"]),  # one of two is half
        ([[0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1]], ["bad"]),  # two of three are needed
        ([[1, 0, 0, 1, 1, 0]], ["you", "very bad"]),
        ([], []),
    ],
)
def test_hatexplain_rationales(write: Write, marks: list[list[int]], expected: list[str]) -> None:
    folder = write("hatexplain", {**POST, "rationales": marks})
    example = only(read("hatexplain", folder=folder))
    assert (example.text, example.label) == ("you are a very bad man", "offensive")
    assert pieces(example, example.rationale) == expected


def test_hatexplain_as_on_the_hub_and_broken(write: Write) -> None:
    hub = {"post_tokens": POST["tokens"], "annotators": {"label": [0, 2, 0]}, "rationales": []}
    tie = {**POST, "labels": ["offensive", "normal", "hatespeech"], "rationales": []}
    data = read(
        "hatexplain", folder=write("hatexplain", hub, tie, {**POST, "rationales": [[1, 0]]}, {**POST, "labels": 3})
    )
    assert only(data).label == "hatespeech"
    assert [each.row for each in data.dropped] == [2, 3, 4]
    assert "do not agree" in data.dropped[0].reason
    assert data.dropped[1].reason == "a rationale has 2 marks for 6 tokens"
    assert "not as expected" in data.dropped[2].reason


CONTEXT = "The keys lie on the table."


def test_squad_answers_stand_in_their_context(write: Write, tmp_path: Path) -> None:
    flat = {
        "question": "What lies?",
        "context": CONTEXT,
        "answers": ["keys", "The keys", "keys"],
        "answer_starts": [4, 0, 4],
    }
    wrong = {**flat, "answers": ["cat"], "answer_starts": [4]}
    partly = {**flat, "answers": ["cat", "table"], "answer_starts": [4, 20]}
    data = read("squad_v1", folder=write("squad_v1", flat, wrong, partly))
    first, third = data
    assert first.text == ("What lies?", CONTEXT)
    assert pieces(first, first.answer) == ["keys", "The keys"]
    assert pieces(third, third.answer) == ["table"]
    assert data.dropped == [Dropped(2, "answer 'cat' does not stand at its place, where 'key' does")]

    # Unanswerable questions of v2, as the Hub has them and as the published file does.
    none = {"question": "Who?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}}
    assert only(read("squad_v2", folder=write("squad_v2", none))).answer == ()
    questions = [
        {"question": "Who?", "id": "a", "is_impossible": True, "answers": []},
        {"question": "What?", "id": "b", "answers": [{"text": "keys", "answer_start": 4}]},
    ]
    file = tmp_path / "dev-v2.0.json"
    file.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": questions}]}]}))
    answers = [pieces(example, example.answer) for example in read("squad_v2", folder=file)]
    assert answers == [[], ["keys"]]
    file.write_text('{"data": [{}]}')
    with pytest.raises(WherefromError, match="not SQuAD's JSON"):
        list(read("squad_v2", folder=file))


def linzen(sentence: str, index: int, verb: str, wrong: str, label: int = 1) -> dict[str, Any]:
    return {
        "sentence": sentence, "verb_index": index, "verb": verb, "wrong_verb": wrong, "n_attractors": 1, "label": label,
    }  # fmt: skip


def test_linzen_and_what_two_sets_share(write: Write) -> None:
    keys = linzen("the keys to the door are here .", 5, "are", "is")
    new = linzen("Are the keys here ?", 0, "Are", "is")
    folder = write("linzen_colorless", keys, new, linzen("the keys to it are here .", 5, "are", "is"), split="test")
    data = read("linzen_colorless", folder=folder)
    first, second = data
    assert first == Example(
        "test:1", "the keys to the door [MASK] here .", "plural", target="are", foil="is", attractors=1
    )
    assert (second.text, second.target) == ("[MASK] the keys here ?", "are")
    assert data.dropped == [Dropped(3, "'are' is not word 5 of the sentence")]

    write("linzen_lgd", linzen("a b c", 1, "b", "x"), split="test")
    write("linzen_lgd", {**keys, "sentence": "The keys to the door  are here ."}, split="train")
    apart = read("linzen_colorless", folder=folder, without="linzen_lgd")
    assert [example.id for example in apart] == ["test:2"]
    assert apart.dropped[0] == Dropped(1, "the sentence is also in linzen_lgd")


def test_plain_tables_are_read_by_their_columns(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(
        json.dumps({"review": "a [MASK] film", "good": "fine", "bad": "fin", "why": [[9, 13]], "n": 2}) + "\n"
    )
    columns = {"text": "review", "target": "good", "foil": "bad", "cues": "why", "attractors": "n"}
    example = only(read(file, columns=columns))
    assert example == Example("mine:1", "a [MASK] film", target="fine", foil="fin", cues=((9, 13),), attractors=2)
    csv = tmp_path / "mine.csv"
    csv.write_text('text,label,rationale,group\na fine film,1,"[[2, 6]]",x\na b,0,"[[2, 9]]",\na,b\nno mark,1,,\n')
    data = read(csv)
    assert next(iter(data)) == Example("mine:1", "a fine film", label=1, rationale=((2, 6),), group="x")
    assert [each.reason for each in data.dropped] == [
        "span (2, 9) of 'rationale' lies outside the 3 characters of the text",
        "it has 2 fields, the header 4",
    ]
    csv.write_text("prompt,target,foil,answer,label\nThe keys to the door, are, is,no place,plural\n")
    named = only(read(csv, columns={"text": "prompt"}))
    assert named == Example("mine:1", "The keys to the door", "plural", target=" are", foil=" is")
    other = only(read(csv, columns={"text": "prompt", "group": "label"}))  # which is no label then
    assert (other.label, other.group) == (None, "plural")
    csv.write_text("sentence,stars\na film,4\n")
    assert only(read(csv, columns={"label": "stars"})) == Example("mine:1", "a film", 4)
    file.write_text('{"a": 1}\n')
    with pytest.raises(WherefromError, match=r"no column 'text' or 'image'; it has: a\. Name"):
        list(read(file))
    with pytest.raises(WherefromError, match="no column 'b' for its text"):
        list(read(file, columns={"text": "b"}))
    with pytest.raises(WherefromError, match="columns has words; expected parts"):
        read(file, columns={"words": "a"})


def test_rows_may_lack_what_others_have(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    rows = [
        {"text": "The boys", "target": " are"},
        {"text": "The keys", "target": " are here", "foil": " is", "cues": [[4, 8]]},
        {"text": "The key", "target": None, "foil": ""},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = [
        Example("prompts:1", "The boys", target=" are"),
        Example("prompts:2", "The keys", target=" are here", foil=" is", cues=((4, 8),)),
        Example("prompts:3", "The key"),
    ]
    data = read(file)
    assert list(data) == expected
    assert not data.dropped
    csv = tmp_path / "prompts.csv"
    csv.write_text('text,target,foil,cues\nThe boys, are,,\nThe keys, are here, is,"[[4, 8]]"\nThe key,,,\n')
    assert list(read(csv)) == expected


def test_parquet_is_streamed(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for part in range(2):
        rows = [{"sentence": f"film {part} {i}", "label": 1} for i in range(1500)]
        (tmp_path / "sst2").mkdir(exist_ok=True)
        parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "sst2" / f"train-0000{part}-of-00002.parquet")
    data = read("sst2", "train", folder=tmp_path)
    assert len(data) == 3000
    assert [example.id for example in data][1499:1501] == ["train:1500", "train:1501"]


def test_a_dataset_is_read_anew_and_known_by_its_content(write: Write) -> None:
    rows = [{"sentence": f"film {i}", "label": 1} for i in range(5)]
    data = read("sst2", folder=write("sst2", *rows))
    assert list(data) == list(data)
    before = data.fingerprint
    assert pickle.loads(pickle.dumps(data)).fingerprint == before
    assert [example.text for example in read("sst2", limit=2, folder=write("sst2", "{", *rows))] == ["film 0", "film 1"]
    assert read("sst2", folder=write("sst2", *rows)).fingerprint == before
    assert read("sst2", folder=write("sst2", "{", *rows)).fingerprint != before  # a dropped row counts
    assert read("sst2", folder=write("sst2", *rows[:4], {**rows[4], "label": 0})).fingerprint != before


def test_nothing_usable_is_an_error(write: Write) -> None:
    folder = write("sst2", {"sentence": "", "label": 1}, {"sentence": "a", "label": None})
    with pytest.raises(
        WherefromError, match="all 2 rows are broken: row 1: 'sentence' is empty; row 2: 'label' is empty"
    ):
        list(read("sst2", folder=folder))
    with pytest.raises(WherefromError, match="it has no rows"):
        len(read("sst2", folder=write("sst2")))
    with pytest.raises(WherefromError, match="limit is 0"):
        read("sst2", folder=folder, limit=0)


def test_where_data_is_looked_for(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"sentence": "a", "label": 1}
    folder = write("sst2", row)
    monkeypatch.setenv("WHEREFROM_DATA", str(folder))
    own = folder / "sst2"
    for data in (
        read("sst2"),
        read("sst2", folder=own),
        read("sst2", folder=own / "validation.jsonl"),
        read(own),
        read(own / "validation.jsonl"),
    ):
        assert only(data) == Example("validation:1", "a", "positive")
    with pytest.raises(WherefromError, match=r"sst2 has no test in .*; it holds: validation"):
        read("sst2", "test")
    with pytest.raises(WherefromError, match=r"imdb is not in .*; expected a folder imdb or imdb_text2vec"):
        read("imdb", folder=tmp_path)
    with pytest.raises(WherefromError, match="linzen_lgd was not found; set WHEREFROM_DATA or folder="):
        read("linzen_lgd")
    with pytest.raises(
        WherefromError, match=r"there is no dataset or file 'sst3'; did you mean 'sst2'.* expected a file .* sst2, mnli"
    ):
        read("sst3")
    with pytest.raises(WherefromError, match="sst2 has no group 'x'; its groups: none"):
        read("sst2:x")
    with pytest.raises(WherefromError, match="a folder, and not the folder of a dataset"):
        read(tmp_path)


def test_the_hub_is_asked_where_there_are_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None, str]] = []

    def load_dataset(path: str, config: str | None = None, *, split: str) -> Iterator[dict[str, Any]]:
        if split == "nowhere":
            raise ValueError('Unknown split "nowhere"')
        asked.append((path, config, split))
        return iter([{"UID": config, "sentence_good": "Ann has left.", "sentence_bad": "Ann have left.", "text": "a"}])

    monkeypatch.delenv("WHEREFROM_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    data = list(read("blimp:rpsv"))
    assert [example.text for example in data] == ["Ann [MASK] left."]
    assert data[0].id == "train:5"  # the five paradigms, one after another
    assert {split for _, _, split in asked} == {"train"}
    assert only(read("hub:owner/name", "test")).text == "a"
    assert asked[-1] == ("owner/name", None, "test")
    with pytest.raises(WherefromError, match=r"stanfordnlp/sst2 .nowhere. did not come from the Hugging Face Hub"):
        list(read("sst2", "nowhere"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(WherefromError, match=r"pip install -e '\.\[hub\]'.*set WHEREFROM_DATA"):
        list(read("sst2"))


def test_masks_of_other_models_move_the_spans() -> None:
    example = Example("1", "the keys [MASK] with all the doors", cues=((4, 8), (29, 34)), target="are")
    moved = example.with_mask("<a-long-mask>")
    assert moved.text == "the keys <a-long-mask> with all the doors"
    assert pieces(moved, moved.cues) == ["keys", "doors"] == pieces(example, example.cues)
    assert example.with_mask("[MASK]") is example
    pair = Example("1", ("[MASK] ?", "all [MASK] well"), answer=((11, 15),)).with_mask("<m>")
    assert pair.text == ("<m> ?", "all <m> well")
    assert [pair.text[1][a:b] for a, b in pair.answer] == ["well"]


def test_every_dataset_says_what_it_is() -> None:
    assert set(known()) == {*SOURCES, "grammar", "drawn", "mosaics:NAME"}
    assert all(known().values())


# Rows kept and rows dropped, of the copies beside the checkout; the numbers of rows are those their README states.
REAL = {
    ("sst2", "validation"): (872, 0),
    ("mnli", "validation_matched"): (9815, 0),
    ("qqp", "validation"): (9917, 83),
    ("hatexplain", "train"): (15382, 1),
    ("imdb", "train"): (5000, 0),
    ("yelp", "test"): (4455, 545),
    ("amazon", "test"): (1000, 0),
    ("squad_v1", "validation"): (10565, 0),
    ("blimp", "test"): (5000, 0),
    ("blimp-prompts", "test"): (10988, 12),
    ("linzen_lgd", "test"): (1439, 0),
    ("multi30k", "test_2016_flickr"): (1000, 0),
}


@real
@pytest.mark.parametrize(("name", "split"), REAL)
def test_real_data_is_read_whole(name: str, split: str) -> None:
    data = read(name, split, folder=SHARED)
    assert (len(data), len(data.dropped)) == REAL[name, split]


@real
def test_the_two_agreement_sets_share_1076_sentences() -> None:
    data = read("linzen_colorless", folder=SHARED, without="linzen_lgd")
    assert (len(data), len(data.dropped)) == (7489 - 1076, 1076)


@pytest.mark.parametrize("odd", [[[9, 12]], "two", 1.5, "NaN", "inf", {}])
def test_attractors_are_counted(tmp_path: Path, odd: Any) -> None:
    file = tmp_path / "odd.jsonl"
    rows = [{"text": "the cat", "attractors": odd}, {"text": "the dog", "attractors": 2}]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    data = read(str(file), columns={"text": "text", "attractors": "attractors"})
    assert [each.attractors for each in data] == [2]
    assert "not a whole number" in data.dropped[0].reason
