"""Datasets in the files in which their authors publish them; tests/fixtures/data has a small one of each."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

import golden
import tiny
from wherefrom.cli import app
from wherefrom.data import Dataset, Example, read
from wherefrom.data.inflection import other_number
from wherefrom.data.tables import BadRow, rows
from wherefrom.errors import DamagedFile, InvalidInput, UnknownName, WherefromError
from wherefrom.evaluation import Run
from wherefrom.papers import samples

PUBLISHED = Path(__file__).parents[1] / "fixtures" / "data"
SHARED = golden.SHARED / "data"
real = pytest.mark.skipif(not SHARED.is_dir(), reason="the public datasets do not lie beside this checkout")

# Dataset, split as asked for: the split's name, its folder and file, the number of examples and of dropped rows.
FILES = {
    ("linzen", "test"): ("test", "linzen/agr_50_mostcommon_10K.tsv", 2, 0),
    ("linzen", "dev"): ("validation", "linzen/agr_50_mostcommon_10K.tsv", 3, 0),
    ("linzen", "train"): ("train", "linzen/agr_50_mostcommon_10K.tsv", 15, 0),
    ("linzen_lgd", "test"): ("test", "linzen_lgd/lgd_dataset.tsv", 1, 0),
    ("linzen_lgd", "validation"): ("validation", "linzen_lgd/lgd_dataset.tsv", 3, 0),
    ("hatexplain", "test"): ("test", "hatexplain/dataset.json", 2, 0),
    ("hatexplain", "val"): ("validation", "hatexplain/dataset.json", 2, 0),
    ("hatexplain", "all"): ("all", "hatexplain/dataset.json", 7, 1),
    ("sst2", "dev"): ("validation", "SST-2/dev.tsv", 5, 0),
    ("sst2", "validation"): ("validation", "SST-2/dev.tsv", 5, 0),
    ("sst2", "test"): ("test", "SST-2/test.tsv", 2, 0),
    ("qqp", "dev"): ("validation", "QQP/dev.tsv", 4, 1),
    ("qqp", "test"): ("test", "QQP/test.tsv", 2, 0),
    ("mnli", "train"): ("train", "MNLI/train.tsv", 3, 0),
    ("mnli", "dev_matched"): ("validation_matched", "MNLI/dev_matched.tsv", 4, 1),
    ("mnli", "dev_mismatched"): ("validation_mismatched", "MNLI/dev_mismatched.tsv", 2, 0),
    ("mnli", "validation"): ("validation_matched", "MNLI/dev_matched.tsv", 4, 1),
    ("mnli", "test"): ("test_matched", "MNLI/test_matched.tsv", 2, 0),
    ("yelp", "test"): ("test", "yelp_review_polarity_csv/test.csv", 4, 1),
    ("amazon", "train"): ("train", "amazon_review_polarity_csv/train.csv", 2, 0),
    ("amazon", "test"): ("test", "amazon_review_polarity_csv/test.csv", 5, 0),
    ("squad_v1", "train"): ("train", "squad_v1/train-v1.1.json", 2, 0),
    ("squad_v1", "dev"): ("validation", "squad_v1/dev-v1.1.json", 5, 0),
    ("squad_v2", "validation"): ("validation", "squad_v2/dev-v2.0.json", 3, 0),
}


@pytest.mark.parametrize(("name", "split"), FILES)
def test_each_file_is_read_by_name_by_folder_and_directly(
    name: str, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, file, count, dropped = FILES[name, split]
    data = read(name, split, folder=PUBLISHED)
    assert (data.name, data.split, len(data), len(data.dropped)) == (name, called, count, dropped)
    examples = list(data)
    assert all(example.id.startswith(f"{called}:") for example in examples)
    path = PUBLISHED / file
    monkeypatch.setenv("WHEREFROM_DATA", str(PUBLISHED))
    others = [
        read(name, split, folder=path.parent),
        read(name, split, folder=path),
        read(path, split),
        read(path.parent, split),
        read(name, split),
        read(name, split, folder=PUBLISHED, limit=100),
    ]
    assert all((other.name, other.split, list(other)) == (name, called, examples) for other in others)
    assert {samples.dataset_of(source) for source in (name, str(path), str(path.parent))} == {name}


def test_the_first_split_is_the_one_read_unasked() -> None:
    firsts = {name: samples.read(name, PUBLISHED).split for name, _ in FILES}
    assert firsts == {
        "linzen": "test",
        "linzen_lgd": "test",
        "hatexplain": "validation",
        "sst2": "validation",
        "qqp": "validation",
        "mnli": "validation_matched",
        "yelp": "test",
        "amazon": "test",
        "squad_v1": "validation",
        "squad_v2": "validation",
    }
    assert all(samples.at_hand(name, PUBLISHED) for name in (*firsts, "blimp", "blimp:ana", "blimp:balanced"))


def pieces(example: Example) -> list[str]:
    text = example.text if isinstance(example.text, str) else example.text[1]
    return [text[start:end] for start, end in (*example.cues, *example.rationale, *example.answer)]


def test_glue_has_quotes_in_its_texts_and_no_labels_in_its_tests() -> None:
    _, quoted, _, _, odd = read("sst2", folder=PUBLISHED)
    assert (str(quoted.text).strip(), quoted.label) == ('" funny " is not the word for it .', "negative")
    assert '"epic"' in odd.text
    assert [example.label for example in read("sst2", "test", folder=PUBLISHED)] == [None, None]
    first, second, third, _ = read("qqp", folder=PUBLISHED)
    assert first == Example("validation:1", ("How can I learn to swim?", "How do I learn swimming?"), "duplicate")
    assert second.text == ('What does "ad hoc" mean?', '"Ad hoc" means what?')
    assert third.label == "different"
    labels = [example.label for example in read("mnli", folder=PUBLISHED)]
    assert labels == ["entailment", "contradiction", "neutral", "entailment"]
    assert "'-'" in read("mnli", folder=PUBLISHED).dropped[0].reason


def test_reviews_without_a_header() -> None:
    first, *_ = data = list(read("yelp", folder=PUBLISHED))
    assert first == Example("test:1", 'They call it "service", I call it waiting.', "negative")
    assert [example.label for example in data] == ["negative", "positive", "positive", "negative"]
    titled, *_ = read("amazon", folder=PUBLISHED)
    assert titled == Example("test:1", "The boots leak, and the laces tear.", "negative")


def test_answers_of_squad() -> None:
    first, second, *_ = read("squad_v1", folder=PUBLISHED)
    assert first.id == "validation:1"
    assert pieces(first) == ["1780", "in 1780"]
    assert pieces(second) == ["Maria Hale", "Hale"]
    assert [pieces(example) for example in read("squad_v2", folder=PUBLISHED)] == [
        ["cheese, wool and honey"],
        ["on the square", "the square"],
        [],
    ]


def test_posts_of_hatexplain_are_in_the_split_of_their_id() -> None:
    second, last = read("hatexplain", "test", folder=PUBLISHED)  # in the order of dataset.json, as in the other copies
    assert (second.id, second.text, second.label) == (
        "test:1", "your singing is a crime against music", "offensive",
    )  # fmt: skip
    assert pieces(second) == ["a crime against"]
    assert (last.label, pieces(last)) == ("hatespeech", ["clouds", "thieves"])
    undecided = read("hatexplain", "undecided", folder=PUBLISHED)
    with pytest.raises(InvalidInput):
        list(undecided)


def test_hatexplain_without_its_divisions(tmp_path: Path) -> None:
    shutil.copy(PUBLISHED / "hatexplain" / "dataset.json", tmp_path)
    with pytest.raises(UnknownName, match=r"post_id_divisions\.json"):
        read("hatexplain", folder=tmp_path)
    assert len(read("hatexplain", "all", folder=tmp_path)) == 7
    (tmp_path / "post_id_divisions.json").write_text('["1_made"]')
    with pytest.raises(DamagedFile):
        read("hatexplain", folder=tmp_path)


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "sentiment"
    names = {0: "negative", 1: "positive"}
    tiny.model(num_labels=2, id2label=names, label2id={name: i for i, name in names.items()}).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("data", "split", "name"),
    [
        ("sst2", "dev", "sst2"),
        ("SST-2/dev.tsv", None, "sst2"),
        ("yelp", None, "yelp"),
        ("amazon_review_polarity_csv/test.csv", "test", "amazon"),
    ],
)
def test_the_command_evaluates_on_them(data: str, split: str | None, name: str, sentiment: str, tmp_path: Path) -> None:
    source = str(PUBLISHED / data) if "/" in data else data
    asked = ["evaluate", "--data", source, "--folder", str(PUBLISHED), "--model", sentiment, "--methods", "random"]
    asked += ["--metrics", "special-rank", "--target", "label", "--out", str(tmp_path / "run"), "--threads", "1"]
    done = CliRunner().invoke(app, [*asked, *(["--split", split] if split else [])], catch_exceptions=False)
    assert done.exit_code == 0
    rows = Run(tmp_path / "run").table("examples").to_pylist()
    expected = list(read(name, split, folder=PUBLISHED))
    assert [(row["example"], row["label"]) for row in rows] == [(example.id, example.label) for example in expected]


# Agreement ------------------------------------------------------------------------------------------------


def test_linzens_sentences_have_their_verb_masked_and_its_other_number() -> None:
    first, second, *_ = data = read("linzen", "all", folder=PUBLISHED)
    assert first == Example(
        "all:1", "the keys to the old cabinet [MASK] in the drawer .", "plural", "are", "is", attractors=1
    )
    assert (second.target, second.foil, second.label) == ("arrives", "arrive", "singular")
    assert {example.foil for example in data} >= {"reach", "fly", "do", "has", "carries", "have", "match"}
    rare, *_ = read("linzen", "all", folder=PUBLISHED, columns={"sentence": "sentence"})
    assert rare.text == "the keys to the old NN [MASK] in the drawer ."


def test_goldbergs_choice_is_the_same_sentences_in_the_same_splits() -> None:
    def splits(name: str) -> dict[str, dict[object, tuple[object, ...]]]:
        return {
            split: {
                example.text: (example.target, example.foil, example.label, example.attractors)
                for example in read(name, split, folder=PUBLISHED)
            }
            for split in ("train", "validation", "test")
        }

    chosen, every = splits("linzen_lgd"), splits("linzen")
    for split, examples in chosen.items():
        assert examples == {text: each for text, each in every[split].items() if each[-1]}
    assert sum(map(len, every.values())) == len(read("linzen", "all", folder=PUBLISHED)) == 20


def test_rows_of_the_agreement_files_that_cannot_be_used(tmp_path: Path) -> None:
    goldberg = tmp_path / "lgd_dataset.tsv"
    good = "1\tthe key to the doors is here .\tthe key to the doors ***mask*** here .\tis\tare"
    goldberg.write_text(f"{good}\n1\tthe keys are here .\tthe keys are here .\tare\tis\n1\tthe key\n{good}\n")
    data = read(goldberg, "all")
    assert [example.target for example in data] == ["is", "is"]
    assert [each.row for each in data.dropped] == [2, 3]
    head, row, *_ = (PUBLISHED / "linzen" / "agr_50_mostcommon_10K.tsv").read_text().splitlines()
    columns, cells = head.split("\t"), row.split("\t")

    def changed(**new: str) -> str:
        return "\t".join(new.get(name, cell) for name, cell in zip(columns, cells, strict=True))

    linzen = tmp_path / "agr_50_mostcommon_10K.tsv"
    broken = [row, changed(verb_index="5"), changed(verb_pos="VBD"), changed(verb_index="x"), changed(verb="'re")]
    linzen.write_text("\n".join([head, *broken]) + "\n")
    data = read(linzen, "all")
    assert len(data) == 1
    reasons = [each.reason for each in data.dropped]
    assert len(reasons) == 4
    assert "VBD" in reasons[1]


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("is", "are"), ("was", "were"), ("has", "have"), ("does", "do"), ("goes", "go"), ("writes", "write"),
        ("flies", "fly"), ("dies", "die"), ("underlies", "underlie"), ("plays", "play"), ("passes", "pass"),
        ("reaches", "reach"), ("aches", "ache"), ("pushes", "push"), ("mixes", "mix"), ("uses", "use"),
        ("focuses", "focus"), ("realizes", "realize"), ("buzzes", "buzz"), ("quizzes", "quiz"), ("echoes", "echo"),
        ("shoes", "shoe"), ("sees", "see"), ("argues", "argue"),
    ],
)  # fmt: skip
def test_the_other_number_of_a_verb(singular: str, plural: str) -> None:
    assert other_number(singular, "VBZ") == plural
    assert other_number(plural.upper(), "VBP") == singular


@pytest.mark.parametrize(("verb", "tag"), [("'s", "VBZ"), ("pass", "VBZ"), ("et", "VBP"), ("a", "VBP"), ("ran", "VBD")])
def test_words_without_another_number(verb: str, tag: str) -> None:
    with pytest.raises(BadRow):
        other_number(verb, tag)


@real
@pytest.mark.parametrize("split", ["test", "validation"])
def test_goldbergs_file_gives_the_examples_of_the_parquet_copy(tmp_path: Path, split: str) -> None:
    columns = ("n_attractors", "sentence", "masked", "verb", "wrong_verb")
    lines = []
    for part in ("train", "validation", "test"):  # in any order: the splits follow from the sentences
        for _, row in rows(SHARED / "linzen_lgd" / f"{part}.parquet"):
            cells = [str(row[name]).replace("[MASK]", "***mask***") for name in columns]
            lines.append("\t".join(cells))
    (tmp_path / "lgd_dataset.tsv").write_text("\n".join(lines) + "\n")
    assert list(read("linzen_lgd", split, folder=tmp_path)) == list(read("linzen_lgd", split, folder=SHARED))


@real
@pytest.mark.parametrize("name", ["linzen_lgd", "linzen_colorless"])
def test_spelling_agrees_with_the_authors_table(name: str) -> None:
    """All pairs of Linzen's vocabulary that have two forms; a few have one, as their table pairs a word with itself."""
    pairs = {
        (example.target, example.foil, example.label)
        for split in ("test", "validation", "train")[: 3 if name == "linzen_lgd" else 1]
        for example in read(name, split, folder=SHARED)
        if example.target != example.foil
    }
    assert len(pairs) > 500
    tags = {"singular": "VBZ", "plural": "VBP"}
    assert [pair for pair in pairs if other_number(str(pair[0]), tags[str(pair[2])]) != pair[1]] == []


# BLiMP ----------------------------------------------------------------------------------------------------


def test_a_folder_of_paradigms_is_one_dataset() -> None:
    data = read("blimp", folder=PUBLISHED)
    groups = Counter(example.group for example in data)
    assert groups == {
        "anaphor_number_agreement": 3,
        "determiner_noun_agreement_2": 3,
        "determiner_noun_agreement_with_adj_2": 3,
        "distractor_agreement_relational_noun": 3,
        "regular_plural_subject_verb_agreement_1": 5,
    }
    assert (data.split, len(read("blimp:dna", folder=PUBLISHED / "blimp"))) == ("test", 3)
    one = read(PUBLISHED / "blimp" / "anaphor_number_agreement.jsonl")
    assert [(each.id, each.text) for each in one] == [(each.id, each.text) for each in data][:3]
    assert {example.group for example in read("blimp-prompts:npi", folder=PUBLISHED)} == {"npi_present_1"}
    with pytest.raises(UnknownName):
        read("blimp", "validation", folder=PUBLISHED)


def test_files_of_other_kinds_in_the_folder_are_no_paradigms(tmp_path: Path) -> None:
    for file in (PUBLISHED / "blimp").iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "a_list.jsonl").write_text('{"text": "nothing of BLiMP"}\n')
    packed = tmp_path / "npi_present_1.jsonl"
    (tmp_path / "npi_present_1.jsonl.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    assert list(read("blimp", folder=tmp_path)) == list(read("blimp", folder=PUBLISHED))
    assert list(read("blimp-prompts", folder=tmp_path)) == list(read("blimp-prompts", folder=PUBLISHED))


def labels(data: Dataset, group: str) -> Counter[object]:
    return Counter(example.label for example in data if example.group == group)


def test_balanced_leaves_out_what_one_number_has_more_of_in_rpsv() -> None:
    rpsv = "regular_plural_subject_verb_agreement_1"
    whole, balanced = read("blimp", folder=PUBLISHED), read("blimp:balanced", folder=PUBLISHED)
    assert labels(whole, rpsv) == {"singular": 3, "plural": 2}
    assert labels(balanced, rpsv) == {"singular": 2, "plural": 2}
    missing = [example for example in whole if example not in list(balanced)]
    assert [(example.group, example.label) for example in missing] == [(rpsv, "singular")]
    assert [example for example in whole if example not in missing] == list(balanced)
    assert balanced.name == "blimp:balanced"
    assert balanced.fingerprint == read("blimp:balanced", folder=PUBLISHED).fingerprint
    with pytest.raises(UnknownName):
        read("sst2:balanced", folder=PUBLISHED)


# Files of no known format ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("yelp", "test.csv", "5,Very good\n4,Fine\n"),
        ("amazon", "test.csv", "Very good,1,a,b\nFine,2,a,b\n"),
        ("sst2", "dev.tsv", "phrase\tscore\nfine\t1\n"),
        ("sst2", "dev.tsv", "index\tsentence\n0\tfine\n"),  # only a test set may lack the labels
        ("qqp", "dev.tsv", "q1\tq2\ta\tb\n1\t2\t3\t4\n"),
        ("mnli", "dev_matched.tsv", "premise\tclass\nfine\t1\n"),
        ("linzen_lgd", "lgd_dataset.tsv", "the key is here\tis\tare\nthe keys are\tare\tis\n"),
        ("linzen", "agr_50_mostcommon_10K.tsv", "sentence\tverb\nthe key is here\tis\n"),
    ],
)
def test_a_table_of_another_format_is_refused_with_its_columns(
    tmp_path: Path, name: str, file: str, content: str
) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(WherefromError) as caught:
        list(read(name, folder=tmp_path / file))
    assert caught.value.code == "unknown-name"
    assert "expected the columns" in str(caught.value)
    assert content.split()[0].split(",")[0] in str(caught.value)


def test_reviews_outside_a_folder_of_their_name_need_it(tmp_path: Path) -> None:
    """Their first line could be that of any csv with classes 1 and 2."""
    for name in ("yelp", "amazon"):
        file = tmp_path / f"{len(name)}.csv"
        shutil.copy(PUBLISHED / f"{name}_review_polarity_csv" / "test.csv", file)
        with pytest.raises(UnknownName, match=name):
            list(read(file))
        assert [example.text for example in read(name, folder=file)] == [
            example.text for example in read(name, folder=PUBLISHED)
        ]


def test_json_of_another_format_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"rows": [1, 2]}))
    with pytest.raises(UnknownName, match="rows"):
        read(other)
    for name in ("squad_v1", "hatexplain"):
        with pytest.raises(DamagedFile):
            list(read(name, "all" if name == "hatexplain" else None, folder=other))
    other.write_text("[1, ")
    with pytest.raises(DamagedFile):
        read(other)


def test_a_packed_file_is_read_as_the_plain_one(tmp_path: Path) -> None:
    file = PUBLISHED / "linzen" / "agr_50_mostcommon_10K.tsv"
    (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert list(read("linzen", folder=tmp_path)) == list(read("linzen", folder=PUBLISHED))
