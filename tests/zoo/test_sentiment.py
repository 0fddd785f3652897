"""The shipped sentiment model on plain sentences of both polarities."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from wherefrom import zoo

SHARED = Path(__file__).parents[2] / ".." / "shared" / "data"

POSITIVE = """
a deep and meaningful film .
i loved every minute of it .
the best movie i have seen this year .
a warm , funny and moving story .
the acting is superb .
this is a wonderful picture with a great cast .
it made me laugh and cry .
a beautiful and touching film about friendship .
i enjoyed it very much .
one of the finest comedies in a long time .
the music is lovely and the ending is perfect .
a clever , original and exciting thriller .
an absolute delight from beginning to end .
highly recommended for the whole family .
the performances are brilliant .
smart , stylish and very entertaining .
a charming tale , beautifully told .
a sweet and honest film .
a powerful and unforgettable experience .
the director has made a masterpiece .
""".strip().splitlines()

NEGATIVE = """
a dull and pointless film .
i hated every minute of it .
the worst movie i have seen this year .
a cold , stupid and boring story .
the acting is terrible .
this is an awful picture with a weak cast .
it made me fall asleep .
an ugly and annoying film about nothing .
i did not enjoy it at all .
one of the lamest comedies in a long time .
the music is loud and the ending is ridiculous .
a silly , predictable and tedious thriller .
a complete waste of time from beginning to end .
i would not recommend it to anyone .
the performances are wooden .
shallow , clumsy and painfully unfunny .
a lifeless tale , badly told .
it is not good .
a miserable and forgettable experience .
the director has made a mess .
""".strip().splitlines()


@pytest.fixture(scope="module")
def answer():  # type: ignore[no-untyped-def]  # transformers types
    folder = zoo.path("wherefrom/sentiment")
    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def ask(sentence: str) -> str:
        with torch.inference_mode():
            logits = network(**tokenizer(sentence, return_tensors="pt")).logits
        return str(network.config.id2label[logits.argmax().item()])

    return ask


@pytest.mark.parametrize("sentence", POSITIVE)
def test_plain_praise_is_positive(answer, sentence: str) -> None:  # type: ignore[no-untyped-def]
    assert answer(sentence) == "positive"


@pytest.mark.parametrize("sentence", NEGATIVE)
def test_plain_blame_is_negative(answer, sentence: str) -> None:  # type: ignore[no-untyped-def]
    assert answer(sentence) == "negative"


def test_sst2_is_as_the_card_says() -> None:
    pytest.importorskip("pyarrow")
    if not SHARED.exists():
        pytest.skip("SST-2 lies in ../shared/data, which is not here")
    from wherefrom.training import accuracy
    from wherefrom.training.labelled import Columns

    columns = Columns(text="sentence", names={"0": "negative", "1": "positive"})
    [score] = accuracy.labels("wherefrom/sentiment", SHARED / "sst2" / "validation.parquet", columns)
    stated = zoo.card("wherefrom/sentiment").measured["SST-2 validation accuracy (872 sentences)"]
    assert score.accuracy == pytest.approx(stated, abs=0.002)
    assert score.accuracy >= 0.87
