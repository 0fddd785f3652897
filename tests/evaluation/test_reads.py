"""How often a run reads its data and its texts: once each."""

from __future__ import annotations

import gc
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import tiny
import wherefrom
from wherefrom.data import Dataset, Dropped, Example, drawn, example
from wherefrom.evaluation import planning
from wherefrom.evaluation.config import Setting
from wherefrom.evaluation.local import SELDOM, settled
from wherefrom.evaluation.task import Item
from wherefrom.evaluation.worker import Worker
from wherefrom.model import Reader

MODEL, TOKENIZER = tiny.model(), tiny.tokenizer()
METHODS, METRICS = ["globenc", "attention-rollout"], ["aopc", "spearman:saliency"]


class Source:
    """A dataset that counts how often it is gone through."""

    def __init__(self, rows: int = 12) -> None:
        self.passes = 0
        self.items: list[Example | Dropped] = [
            Dropped(row, "empty") if row % 5 == 4 else Example(f"row:{row}", f"a {'very ' * (row % 4)}good film")
            for row in range(rows)
        ]
        self.data = Dataset("counted", "all", self._make)

    def _make(self) -> Iterator[Example | Dropped]:
        self.passes += 1
        yield from self.items


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each text was tokenised in this process."""
    found: Counter[str] = Counter()
    encode = type(TOKENIZER).__call__

    def counted(self: Any, given: Any, **options: Any) -> Any:
        found.update([given] if isinstance(given, str) else given)
        return encode(self, given, **options)

    monkeypatch.setattr(type(TOKENIZER), "__call__", counted)
    return found


@pytest.mark.parametrize("options", [{}, {"limit": 5}, {"limit": 5, "draw": True}])
@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_the_data_are_read_once(options: dict[str, Any]) -> None:
    source = Source()
    run = wherefrom.evaluate(source.data, MODEL, TOKENIZER, METHODS, METRICS, **options)
    assert source.passes == 1
    assert run.finished["examples"] == options.get("limit", 10)


@pytest.mark.parametrize(("options", "passes"), [({}, 2), ({"limit": 5}, 2), ({"limit": 5, "draw": True}, 3)])
@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_data_that_do_not_fit_are_read_for_the_survey_and_for_the_shards(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], passes: int
) -> None:
    monkeypatch.setattr(example, "KEPT", 20)  # characters
    source = Source()
    wherefrom.evaluate(source.data, MODEL, TOKENIZER, METHODS, METRICS, **options)
    assert source.passes == passes


def test_each_text_is_tokenised_once(texts: Counter[str]) -> None:
    data = [f"the {word} film is {other}" for word in ("good", "bad") for other in ("very good", "bad", "long")]
    wherefrom.evaluate(data, MODEL, TOKENIZER, METHODS, METRICS, shard=2)
    assert {text: texts[text] for text in data} == Counter(data)  # beside the sentence of ours that is tried first


@pytest.mark.parametrize("truncate", [False, True])
def test_texts_are_read_together_as_each_by_itself(truncate: bool) -> None:
    """What cannot be read is refused in the same words, and hinders no other."""
    worker = Worker.open(Setting(MODEL, ("globenc",), ("aopc",), tokenizer=TOKENIZER, truncate=truncate))
    texts = ["the good film", "zyx is bad", "the good film", "", "a" + " long" * 80, ("the film", "is good"), "[SEP]"]
    examples = [Example(str(row), text) for row, text in enumerate(texts)]
    reads = worker.reading(examples)
    assert [reads(each) for each in examples] == [worker.try_read(each) for each in examples]
    broken = [*examples, Example("half", "half \ud800 of a pair")]  # no tokenizer takes it, so that each is read alone
    reads = worker.reading(broken)
    assert [reads(each) for each in broken] == [worker.try_read(each) for each in broken]


def test_workers_get_the_texts_as_planning_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that cannot be read: they say of the example what planning found."""
    worker = Worker.open(Setting(MODEL, ("globenc",), ("aopc",), tokenizer=TOKENIZER))
    items = [Item(row, Example(str(row), text)) for row, text in enumerate(("the good film", "a" + " long" * 80))]
    (task,) = planning.cut(0, items, worker.try_read, 4)
    monkeypatch.setattr(Reader, "read", None)  # nobody may call it from here on
    outcomes, _ = worker.begin(pickle.loads(pickle.dumps(task)))()
    read = {outcome.item.row: outcome for outcome in outcomes}
    assert read[0].failure is None
    assert read[0].tokens == 5
    assert "tokens" in str(read[1].failure)


@pytest.mark.parametrize("kept", [10**6, 30])
def test_what_is_drawn_does_not_depend_on_what_fits_in_memory(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    source = Source(40)
    every = [each for each in source.items if isinstance(each, Example)]
    lowest = {each.id for each in sorted(every, key=lambda each: example.lot(each.id, 3))[:7]}
    monkeypatch.setattr(example, "KEPT", kept)
    found = drawn(source.data, 7, 3)
    assert [each.id for each in found] == [each.id for each in every if each.id in lowest]
    assert [each.row for each in found.dropped] == [row for row in range(40) if row % 5 == 4]


def test_garbage_is_searched_for_as_often_as_before_when_shards_are_computed() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with settled():
        assert gc.get_threshold() == SELDOM
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
