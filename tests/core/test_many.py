"""Many inputs: a list that can be tabled and saved, a stream, failures left out, memory, progress."""

from __future__ import annotations

import csv
import itertools
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
import wherefrom
from wherefrom import progress
from wherefrom.errors import DamagedFile, WherefromError, WherefromWarning
from wherefrom.pipeline import execution
from wherefrom.result import tabular
from wherefrom.result.explanations import Explanations

TOKENIZER = tiny.tokenizer()
MODEL: Any = tiny.model()
TEXTS = ["the cat is good", "a bad ☃ film", "the keys to the cabinets are deep ."]


def found(**more: Any) -> Explanations:
    result: Explanations = wherefrom.explain(TEXTS, MODEL, TOKENIZER, "attcat", **more)
    return result


# The list -------------------------------------------------------------------------------------------------


def test_several_inputs_give_a_list_with_more_to_it() -> None:
    every = found()
    assert isinstance(every, list)
    assert isinstance(every[1:], Explanations)
    assert "3 explanations" in repr(every)
    assert repr(every).count("Explanation by attcat") == 3
    assert [each.granularity for each in every.words()] == ["word"] * 3
    shown = every._repr_html_()
    assert shown.count("<tr>") == 4
    assert "☃" in shown


def test_markup_in_a_text_stays_text() -> None:
    shown = wherefrom.explain(["the <b> cat", "a dog"], MODEL, TOKENIZER)._repr_html_()
    assert "<b>" not in shown
    assert "&lt;" in shown


def test_a_row_for_each_token() -> None:
    pytest.importorskip("pandas")
    every = found()
    table = every.to_dataframe()
    assert len(table) == sum(map(len, every))
    assert list(table.columns) == [*tabular.SHARED, *tabular.EACH]
    for row, each in enumerate(every):
        mine = table[table.input == row]
        assert mine.score.tolist() == pytest.approx(each.scores.tolist())
        assert mine.text.tolist() == each.pieces
        assert mine.start.isna().tolist() == each.special
    assert table[table.unknown].text.tolist() == ["☃"]
    assert set(table.target) <= {"LABEL_0", "LABEL_1", "LABEL_2"}
    assert every[0].to_dataframe().equals(table[table.input == 0])
    both = wherefrom.compare(TEXTS, MODEL, TOKENIZER, ["attcat", "alti"])
    assert both.to_dataframe().groupby("method").size().to_dict() == {"alti": len(table), "attcat": len(table)}
    assert set(both[0].to_dataframe().method) == {"attcat", "alti"}


def test_csv_needs_no_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    path = found().save(tmp_path / "scores.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["score"]) for row in rows if row["input"] == "1"] == found()[1].scores.tolist()
    with pytest.raises(WherefromError, match=r"needs the package 'pandas'.*\[pandas\]"):
        found().to_dataframe()


def test_every_kind_of_table_says_the_same(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    every = found()
    from_csv = pandas.read_csv(every.save(tmp_path / "a.csv"), converters={"score": float})  # to the last bit
    from_parquet = pandas.read_parquet(every.save(tmp_path / "a.parquet"))
    lines = [json.loads(line) for line in every.save(tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert from_csv.score.tolist() == from_parquet.score.tolist()
    assert from_csv.token.tolist() == from_parquet.token.tolist()
    assert [line["score"] for line in lines] == [each.scores.tolist() for each in every]
    assert [line["input"] for line in lines] == [0, 1, 2]
    assert (tmp_path / "b.csv").parent / "b.csv" == every[0].save(tmp_path / "b.csv")
    with pytest.raises(WherefromError, match=r"'a\.xls'; expected a name ending in \.json, \.npz, \.html, \.csv, "):
        every.save(tmp_path / "a.xls")
    with pytest.raises(WherefromError, match="cannot write"):
        every.save(tmp_path / "nowhere" / "a.csv")


def stopped(one: wherefrom.Explanation) -> Iterator[tuple[int, wherefrom.Explanation]]:
    yield 0, one
    raise KeyboardInterrupt


def test_what_was_written_before_an_error_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    one = found()[0]
    for ending in tabular.ENDINGS:
        path = tmp_path / f"part{ending}"
        with pytest.raises(KeyboardInterrupt):
            tabular.save(stopped(one), path)
        if ending == ".parquet":
            from pyarrow import parquet

            assert parquet.read_table(path).num_rows == len(one)
        else:
            assert len(path.read_text(encoding="utf-8").splitlines()) == (len(one) + 1 if ending == ".csv" else 1)


@pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")
@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_what_is_saved_is_loaded_unchanged(tmp_path: Path, suffix: str) -> None:
    texts = [TEXTS[0], "", TEXTS[1]]
    for every in (
        wherefrom.explain(texts, MODEL, TOKENIZER, "alti", on_error="skip"),
        wherefrom.compare(texts, MODEL, TOKENIZER, ["alti", "attcat", "alti(layers=[0,2])"], on_error="skip"),
        Explanations(),
    ):
        loaded = Explanations.load(every.save(tmp_path / f"every{suffix}"))
        assert isinstance(loaded, Explanations)
        assert [type(each) for each in loaded] == [type(each) for each in every]
        assert loaded.skipped == every.skipped
        assert loaded.to_dict() == every.to_dict()
        assert [each.scores.dtype for _, each in loaded.each()] == [each.scores.dtype for _, each in every.each()]


def test_a_file_that_is_no_list_is_refused_by_what_it_is(tmp_path: Path) -> None:
    every = found()
    one, many = every[0].save(tmp_path / "one.npz"), every.save(tmp_path / "many.npz")
    with pytest.raises(DamagedFile, match=r"a wherefrom explanation and no list of .*; wherefrom\.Explanation\.load"):
        Explanations.load(one)
    with pytest.raises(DamagedFile, match=r"list of explanations and no explanation; wherefrom\.Explanations\.load"):
        wherefrom.Explanation.load(many)
    for ending in (".jsonl", ".csv"):
        with pytest.raises(WherefromError, match=rf"'table\{ending}'; expected .*\.json or \.npz.*a table, which"):
            Explanations.load(every.save(tmp_path / f"table{ending}"))
    data = every.to_dict()
    for broken, message in (
        ({**data, "version": 7}, "has version 7"),
        ({**data, "explanations": [5]}, "this list of explanations is damaged"),
        ({**data, "skipped": {"x": "y"}}, "this list of explanations is damaged"),
        (
            {**data, "explanations": [None, {**every[0].to_dict(), "scores": [1.0]}]},
            "number 1 of this list: .* damaged",
        ),
        ([], "this is not a wherefrom list of explanations"),
    ):
        with pytest.raises(DamagedFile, match=message):
            Explanations.from_dict(broken)  # type: ignore[arg-type]


# Going on past failures -----------------------------------------------------------------------------------


def test_inputs_that_fail_are_left_out_by_choice() -> None:
    texts = [TEXTS[0], "", TEXTS[1], None]
    with pytest.raises(WherefromError, match=r"2 of 4 inputs cannot be read.*on_error='skip'"):
        wherefrom.explain(texts, MODEL, TOKENIZER)
    with pytest.warns(WherefromWarning, match="2 of 4 inputs were skipped: input 1: the text is empty"):
        every = wherefrom.explain(texts, MODEL, TOKENIZER, "attcat", on_error="skip", target=[0, 1, 2, 0])
    assert [each and each.target.index for each in every] == [0, None, 2, None]
    assert set(every.skipped) == {1, 3}
    assert every[1:].skipped.keys() == {0, 2}
    assert (every + every[:2]).skipped.keys() == {1, 3, 5}
    assert every.copy().skipped == every.skipped
    assert {row for row, _ in every.each()} == {0, 2}
    assert every.words()[1] is None
    assert "2 skipped" in every._repr_html_()


def test_inputs_that_cannot_be_explained_are_left_out_too() -> None:
    model = tiny.model("bert", "masked-lm")
    texts = ["the [MASK] is good", "the cat", "a [MASK]", "a [MASK] [MASK]"]
    with pytest.warns(WherefromWarning, match="input 1: .*; input 3: "):
        every = wherefrom.explain(texts, model, TOKENIZER, "saliency", on_error="skip")
    assert [each is None for each in every] == [False, True, False, True]
    with pytest.raises(WherefromError, match=r"^input 1: position 3 is outside .*; on_error='skip' goes on without it"):
        wherefrom.explain(["the cat is good", "a"], model, TOKENIZER, "alti", position=3)
    with pytest.raises(WherefromError, match=r"^input 3: the text has 2 mask tokens"):
        wherefrom.explain([texts[0], *texts[:1], *texts[2:]], model, TOKENIZER, "saliency", target="cat")
    with pytest.raises(WherefromError, match="no option"):  # the call is wrong, not an input
        wherefrom.explain(texts, model, TOKENIZER, "saliency", on_error="skip", steps=3)
    with pytest.raises(WherefromError, match="input 0: the text is empty"):
        wherefrom.explain(["", " "], model, TOKENIZER, on_error="skip")
    with pytest.raises(WherefromError, match="on_error='ignore'; expected 'raise' or 'skip'"):
        wherefrom.explain(texts, model, TOKENIZER, on_error="ignore")


# Streams --------------------------------------------------------------------------------------------------


def test_a_stream_gives_what_a_list_gives() -> None:
    texts = list(itertools.islice(itertools.cycle(TEXTS), 40))
    expected = wherefrom.explain(texts, MODEL, TOKENIZER, "attcat", batch_size=2)
    streamed = list(wherefrom.explain_stream(iter(texts), MODEL, TOKENIZER, "attcat", batch_size=2))
    assert len(streamed) == 40
    for one, other in zip(streamed, expected, strict=True):
        assert one.tokens == other.tokens
        assert np.allclose(one.scores, other.scores, atol=1e-6)


def test_a_stream_may_be_endless() -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        for text in itertools.cycle(TEXTS):
            read += 1
            yield text

    stream = wherefrom.explain_stream(endless(), MODEL, TOKENIZER, "attcat", batch_size=1)
    assert read == 0
    assert [next(stream).texts[0] for _ in range(3)] == TEXTS
    assert read <= 32


def test_what_came_before_an_input_that_cannot_be_read_is_explained() -> None:
    def broken() -> Iterator[str]:
        yield from TEXTS[:2] * 5
        raise OSError("the disk is gone")

    stream, found = wherefrom.explain_stream(broken(), MODEL, TOKENIZER, "attcat", batch_size=2), []
    with pytest.raises(OSError, match="the disk is gone"):
        found.extend(each.texts[0] for each in stream)
    assert found == TEXTS[:2] * 5


def test_a_stream_counts_on_and_goes_on() -> None:
    texts = [*["a cat"] * 20, "", "a dog"]
    with pytest.raises(WherefromError, match="input 20: the text is empty"):
        list(wherefrom.explain_stream(texts, MODEL, TOKENIZER, "attcat", batch_size=1))
    with pytest.warns(WherefromWarning, match="input 20: the text is empty"):
        every = list(wherefrom.explain_stream(texts, MODEL, TOKENIZER, "attcat", batch_size=1, on_error="skip"))
    assert [row for row, each in enumerate(every) if each is None] == [20]


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(WherefromError, match="a str was given; expected several inputs"):
        wherefrom.explain_stream("a cat", MODEL, TOKENIZER)
    with pytest.raises(WherefromError, match="target is a list"):
        wherefrom.explain_stream(TEXTS, MODEL, TOKENIZER, target=[0, 1, 2])
    with pytest.raises(WherefromError, match="unknown method"):  # at the call, not at the first result
        wherefrom.explain_stream(TEXTS, MODEL, TOKENIZER, "atcat")


# Memory ---------------------------------------------------------------------------------------------------


def held(explanation: wherefrom.Explanation) -> int:
    """Bytes that an explanation keeps alive: a view keeps the whole array that it looks into."""
    arrays = {}
    for name in ("scores", "maps", "aggregated", "head_maps", "layer_scores"):
        array = getattr(explanation, name)
        while isinstance(array, np.ndarray):
            arrays[id(array)] = array
            array = array.base
    return sum(array.nbytes for array in arrays.values() if not isinstance(array.base, np.ndarray))


@pytest.mark.parametrize("position", [None, "mean"])
@pytest.mark.parametrize("method", ["attention-rollout", "alti", "globenc"])
def test_scores_alone_keep_no_map(method: str, position: str | None) -> None:
    texts = [tiny.ids(30), tiny.ids(40, 1)]
    whole = wherefrom.explain(texts, MODEL, method=method, position=position)
    for how in ({"keep": "row"}, {"keep": "scores"}, {"rows": "readout"}):
        for one, other in zip(
            wherefrom.explain(texts, MODEL, method=method, position=position, **how), whole, strict=True
        ):
            assert one.maps is one.aggregated is one.head_maps is None
            assert np.allclose(one.scores, other.scores, atol=1e-6)
            assert held(one) < held(other) / 5
            if how == {"keep": "scores"}:
                assert one.layer_scores is None
            else:
                assert np.allclose(one.layer_scores, other.readout_rows, atol=1e-6)
    both = wherefrom.explain(texts, MODEL, method=method, rows="readout", keep="maps")
    assert np.array_equal(both[0].maps, whole[0].maps)


def test_wrong_values_of_keep_are_refused() -> None:
    with pytest.raises(WherefromError, match="keep='all'; expected 'maps', 'row', 'scores' or None"):
        wherefrom.explain(TEXTS, MODEL, TOKENIZER, keep="all")
    with pytest.raises(WherefromError, match="keep='scores' for none"):
        wherefrom.explain(TEXTS, MODEL, TOKENIZER, "attention", keep="scores", head="all")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 13.0 GiB for an array"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes."),
    ],
)
def test_too_little_memory_is_said_in_a_sentence(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(execution, "_run_batch", fail)
    said = r"not enough memory for alti of 3 inputs of up to 10 tokens at once.*allocate.*batch_size=1 or keep='scores'"
    with pytest.raises(WherefromError, match=said):
        wherefrom.explain(TEXTS, MODEL, TOKENIZER, "alti")


def test_other_errors_of_torch_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(execution, "_run_batch", fail)
    with pytest.raises(RuntimeError, match="something else"):
        wherefrom.explain(TEXTS, MODEL, TOKENIZER, "alti")


# Progress -------------------------------------------------------------------------------------------------


def test_nothing_is_shown_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    wherefrom.explain(TEXTS * 10, MODEL, TOKENIZER, "attcat")
    assert capfd.readouterr() == ("", "")


def test_a_bar_on_stderr_for_more_than_a_batch(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    seen: list[int] = []
    monkeypatch.setattr(progress, "_in_terminal", lambda _total: iter([seen.append]))
    wherefrom.explain(TEXTS, MODEL, TOKENIZER, "attcat", batch_size=16)
    assert seen == []
    wherefrom.explain(TEXTS, MODEL, TOKENIZER, "attcat", batch_size=2)
    assert seen == [2, 1]
    wherefrom.explain(TEXTS, MODEL, TOKENIZER, "attcat", batch_size=2, progress=False)
    list(wherefrom.explain_stream(iter(TEXTS), MODEL, TOKENIZER, "attcat"))
    assert seen == [2, 1, 1, 1, 1]
    monkeypatch.undo()
    wherefrom.explain(TEXTS, MODEL, TOKENIZER, "attcat", batch_size=2, progress=True)
    said = capsys.readouterr()
    assert said.out == ""


@pytest.mark.slow
def test_a_notebook_without_widgets_shows_a_bar_and_no_warning(tmp_path: Path) -> None:
    """The first cell neither warns nor fails, and the bar is drawn and taken away."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    code = (
        "import sys; sys.modules['ipywidgets'] = None\n"
        "import wherefrom\n"
        "found = wherefrom.explain(['a good film'] * 3, method='attcat', batch_size=1)\n"
        "found"
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = book.cells[0].outputs
    assert [each for each in outputs if each.output_type == "stream"] == []
    shown = [each["data"].get("text/html", "") for each in outputs]
    assert "3 explanations" in shown[-1]
    assert not any("<progress" in each for each in shown)


def test_tqdm_is_asked_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> None:
        warnings.warn(f"{name}: IProgress not found", stacklevel=1)

    monkeypatch.setattr(progress, "_notebook", lambda: object())
    monkeypatch.setattr(progress.importlib, "import_module", import_module)
    monkeypatch.delitem(sys.modules, "tqdm.autonotebook", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        progress.quiet_tqdm()


def test_several_explanations_as_one_page(tmp_path: Path) -> None:
    found = wherefrom.compare(["the film", "a cat"], tiny.model(), TOKENIZER, methods=["alti", "attcat"])
    page = found.save(tmp_path / "all.html").read_text(encoding="utf-8")
    assert page == found.to_html()
    assert all(f'"name":"{row}: {name}' in page for row in (0, 1) for name in ("alti", "attcat"))


def test_short_reprs() -> None:
    compared = wherefrom.compare("the film", tiny.model(), TOKENIZER, methods=["alti", "attcat"])
    assert repr(compared) == "<Comparison of alti, attcat>"
    trace = wherefrom.capture(["the film", "a cat"], tiny.model(), TOKENIZER)
    assert repr(trace) == "<Trace of BertForSequenceClassification: 2 inputs, 3 layers>"
    assert repr(trace.layers[1]) == "<LayerTrace of layer 1: 2 inputs of up to 4 tokens>"
    assert repr(wherefrom.open_model(tiny.model())) == "<Model 'BertForSequenceClassification': classification, bert>"
    assert repr(wherefrom.explain(["the film"], tiny.model(), TOKENIZER)).startswith("<1 explanation\n")
