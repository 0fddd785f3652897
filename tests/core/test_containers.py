"""What people hand in: every container of inputs gives what a list gives, and what cannot be read is named."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tiny
import wherefrom
from wherefrom.errors import WherefromError
from wherefrom.result.explanation import Explanation

TOKENIZER = tiny.tokenizer()
MODEL: Any = tiny.model()
TEXTS = ["the cat is good", "a bad film", "the keys to the cabinets are deep ."]
EXPECTED = wherefrom.explain(TEXTS, MODEL, TOKENIZER)
WORDS = {"is_split_into_words": True}


def same(found: Any, expected: list[Explanation]) -> None:
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert np.allclose(one.scores, other.scores, atol=1e-5)


def one_by_one() -> Iterator[str]:
    yield from TEXTS


@pytest.mark.parametrize(
    "inputs",
    [
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        deque(TEXTS),
        dict.fromkeys(TEXTS).keys(),
        [{"text": text, "label": 1} for text in TEXTS],
    ],
    ids=["array", "objects", "deque", "keys", "rows"],
)
def test_every_container_of_texts_gives_a_list(inputs: Any) -> None:
    same(wherefrom.explain(inputs, MODEL, TOKENIZER), EXPECTED)


def test_generators_are_read_once_and_in_order() -> None:
    same(wherefrom.explain(one_by_one(), MODEL, TOKENIZER), EXPECTED)
    same(wherefrom.explain((text for text in TEXTS[:1]), MODEL, TOKENIZER), EXPECTED[:1])
    with pytest.raises(WherefromError, match="input 0: "):
        wherefrom.explain(iter([5, 6]), MODEL, TOKENIZER)  # each item is an input


def test_of_a_table_the_column_that_holds_texts_is_suggested() -> None:
    pandas = pytest.importorskip("pandas")
    ids = {"id": [17, 18], "split": ["train", "train"]}
    for columns, one in (
        ({**ids, "review": ["a cat sat", "a dog"]}, "review"),
        ({**ids, "review": ["a cat sat", "a dog"], "text": ["a", "b"]}, "text"),
        ({"id": [17, 18], "stars": [3, 4]}, "id"),
        ({"id": [], "review": []}, "id"),
    ):
        with pytest.raises(wherefrom.WherefromError, match=rf"with the columns id, .* one of them: table\['{one}'\]"):
            wherefrom.explain(pandas.DataFrame(columns), MODEL, TOKENIZER)
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(wherefrom.WherefromError, match=r"with the columns id, split; pass one of them"):
        wherefrom.explain(pyarrow.table(ids), MODEL, TOKENIZER)


def test_pandas_columns_are_lists_of_inputs() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": TEXTS}, index=[7, 3, 5])
    same(wherefrom.explain(table["text"], MODEL, TOKENIZER), EXPECTED)
    same(wherefrom.explain(table["text"].astype("string"), MODEL, TOKENIZER), EXPECTED)
    same([wherefrom.explain(pandas.Series(TOKENIZER(TEXTS[0])["input_ids"]), MODEL, TOKENIZER)], EXPECTED[:1])
    with pytest.raises(WherefromError, match=r"table was given, with the columns text.*table\['text'\]"):
        wherefrom.explain(table, MODEL, TOKENIZER)
    with pytest.raises(WherefromError, match="input 1: the cell is empty"):
        wherefrom.explain(pandas.Series(["a cat", None]), MODEL, TOKENIZER)


def test_columns_of_datasets_are_lists_of_inputs() -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 1]})
    same(wherefrom.explain(data["text"], MODEL, TOKENIZER), EXPECTED)
    same(wherefrom.explain(data, MODEL, TOKENIZER), EXPECTED)
    encoded = datasets.Dataset.from_dict({**TOKENIZER(TEXTS, padding=True), "label": [0, 1, 1]})
    same(wherefrom.explain(encoded, MODEL, TOKENIZER), EXPECTED)
    same(wherefrom.explain(encoded.with_format("torch"), MODEL, TOKENIZER), EXPECTED)
    with pytest.raises(WherefromError, match=r"neither input_ids nor a column 'text'.*dataset\['review'\]"):
        wherefrom.explain(data.rename_column("text", "review"), MODEL, TOKENIZER)
    with pytest.raises(WherefromError, match=r"several splits.*dataset\['train'\]"):
        wherefrom.explain(datasets.DatasetDict(train=data), MODEL, TOKENIZER)


def test_a_tuple_is_a_pair_of_texts_and_nothing_else() -> None:
    assert wherefrom.explain(("the cat", "is good"), MODEL, TOKENIZER).texts == ("the cat", "is good")
    for inputs in (("a cat",), ("a", "cat", "is", "good"), ([5, 6], [7, 8])):
        with pytest.raises(WherefromError, match=f"a tuple of {len(inputs)} was given.*in a list"):
            wherefrom.explain(inputs, MODEL, TOKENIZER)
    with pytest.raises(WherefromError, match="set has no order"):
        wherefrom.explain({"a cat", "a dog"}, MODEL, TOKENIZER)


def test_rows_by_name() -> None:
    pair = wherefrom.explain({"question": "the cat", "context": "is good", "id": 3}, MODEL, TOKENIZER)
    assert pair.texts == ("the cat", "is good")
    with pytest.raises(WherefromError, match=r"'text' holds a list; pass that column alone: data\['text'\]"):
        wherefrom.explain({"text": ["the cat"]}, MODEL, TOKENIZER)


@pytest.mark.parametrize(("row", "message"), [({"text": ""}, "empty"), ({"text": None}, "'text' is empty")])
def test_a_row_with_an_empty_text_is_said_to_have_one(row: Any, message: str) -> None:
    for inputs in (row, [{"text": "a cat"}, row]):
        with pytest.raises(WherefromError, match=message):
            wherefrom.explain(inputs, MODEL, TOKENIZER)


def test_every_row_that_cannot_be_read_is_named() -> None:
    with pytest.raises(WherefromError, match=r"2 of 4 inputs cannot be read: input 1: the text is empty.*; input 3: "):
        wherefrom.explain(["a cat", "", "a dog", " "], MODEL, TOKENIZER)


def test_arguments_of_the_tokenizer_are_told_where_they_go() -> None:
    with pytest.raises(WherefromError, match=r"'is_split_into_words'; .*tokenizer_kwargs=\{'is_split_into"):
        wherefrom.explain(["a", "good", "film"], tiny.model(), tiny.tokenizer(), is_split_into_words=True)


def test_texts_split_into_words_give_those_words_back() -> None:
    words = ["The", "key,", "meaningful", "didn't!"]
    found = wherefrom.explain(words, MODEL, TOKENIZER, tokenizer_kwargs=WORDS)
    plain = wherefrom.explain(" ".join(words), MODEL, TOKENIZER)
    same([found], [plain])
    assert found.spans == plain.spans
    assert found.words().tokens == ["[CLS]", *words, "[SEP]"]
    assert plain.words().tokens != found.words().tokens
    again = Explanation.from_dict(found.to_dict())
    assert again.words().words().tokens == found.words().tokens
    several = wherefrom.explain([words, ["a", "cat"], np.array(words)], MODEL, TOKENIZER, tokenizer_kwargs=WORDS)
    same(several, [plain, wherefrom.explain("a cat", MODEL, TOKENIZER), plain])
    pair = wherefrom.explain((words, ["a", "cat"]), MODEL, TOKENIZER, tokenizer_kwargs=WORDS)
    assert pair.words().tokens == ["[CLS]", *words, "[SEP]", "a", "cat", "[SEP]"]


def test_what_is_no_list_of_words_is_refused() -> None:
    with pytest.raises(WherefromError, match="expected a list of words"):
        wherefrom.explain("a cat", MODEL, TOKENIZER, tokenizer_kwargs=WORDS)
    with pytest.raises(WherefromError, match=r"input 0: it is itself a list.*is_split_into_words"):
        wherefrom.explain([["a", "good", "cat"]], MODEL, TOKENIZER)


def test_ablation_takes_the_words_given() -> None:
    found = wherefrom.explain(
        ["good,", "cat"], MODEL, TOKENIZER, "ablation", unit="word", tokenizer_kwargs=WORDS, of="logit"
    )
    assert found.tokens[1:3] == ["good", ","]
    assert found.scores[1] == found.scores[2]


# Unknown words, and blanks that are tokens ------------------------------------------------------------------


def test_unknown_words_are_marked() -> None:
    found = wherefrom.explain("a ☃ cat ☃", MODEL, TOKENIZER)
    assert found.pieces == ["[CLS]", "a", "☃", "cat", "☃", "[SEP]"]
    assert found.unknown == [False, False, True, False, True, False]
    assert found.words().unknown == found.unknown
    by_ids = wherefrom.explain(TOKENIZER("a ☃ cat ☃")["input_ids"], MODEL, TOKENIZER)
    assert by_ids.unknown == found.unknown
    assert wherefrom.explain([5, 6], MODEL, method="attention").unknown == [False, False]


def test_blanks_go_with_a_word() -> None:
    """RoBERTa makes a token of every blank too many, at no place of the text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["<s>", "<pad>", "</s>", "<unk>", "Ġ", "a", "Ġa"]
    inner = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [("Ġ", "a")], unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **special)
    found = wherefrom.explain("  a  a ", tiny.model("roberta"), tokenizer)
    assert found.tokens == ["<s>", "Ġ", "Ġa", "Ġ", "Ġa", "Ġ", "</s>"]
    assert found.pieces[1] == "Ġ"
    assert found.groups == [[0], [1, 2, 3], [4, 5], [6]]
    assert found.words().tokens == ["<s>", "a", "a", "</s>"]
    assert wherefrom.data.token_mask(found, [(0, 7)]).tolist() == [False, False, True, False, True, False, False]


def test_a_row_of_a_table_is_no_list_of_texts() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS, "author": ["Ann", "Bob", "Cid"]})
    with pytest.raises(WherefromError, match=r"a row of a table was given.*pass row\['text'\]"):
        wherefrom.explain(frame.iloc[0], MODEL, TOKENIZER)
    same(wherefrom.explain(frame.set_index("author")["text"], MODEL, TOKENIZER), EXPECTED)
