"""Metrics that explain once more, or probe the layers: the numbers of plain calls, and what must be refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import runs

import tiny
import wherefrom
from wherefrom.data import Example
from wherefrom.errors import WherefromError
from wherefrom.evaluation import compare_methods, planning, store
from wherefrom.evaluation.export import means
from wherefrom.evaluation.probes import MODEL as OF_THE_MODEL
from wherefrom.evaluation.summary import Key
from wherefrom.evaluation.worker import Worker
from wherefrom.metric import correlation
from wherefrom.metric.probing import compression_against_alignment, layer_codes, representations
from wherefrom.metric.sanity import randomisation, stability
from wherefrom.view.plot import measured

MODEL, TOKENIZER = tiny.model(), tiny.tokenizer()
METHODS = ["globenc", "attcat"]


def examples(count: int) -> list[Example]:
    """Every tenth is longer than the model reads."""
    return [
        Example(f"e:{i}", str(row["text"]), label=i % 3, group="all", cues=tuple(map(tuple, row["cues"])))  # type: ignore[arg-type]
        for i, row in enumerate(runs.rows(count))
    ]


def evaluate(data: Any, metrics: Any, methods: Any = METHODS, **options: Any) -> wherefrom.Run:
    return wherefrom.evaluate(data, MODEL, TOKENIZER, methods, metrics, threads=1, **options)


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_randomisation_and_stability_equal_their_functions() -> None:
    data = examples(10)
    data, read = data[4:], data[4:9]
    texts = [each.text for each in read]
    metrics = ["randomisation(seed=3, magnitude=true)", "randomisation(independent=true)"]
    disturbed = {what: f"stability(against={what})" for what in ("batch", "padding", "bfloat16")}
    run = evaluate(data, [*metrics, *disturbed.values()], batch_size=2, shard=4)
    found = {
        (row["example"], row["method"], row["metric"], row["layer"]): row["value"] for row in run.table().to_pylist()
    }
    cascading = randomisation(texts, MODEL, TOKENIZER, METHODS, seed=3, magnitude=True)
    independent = randomisation(texts, MODEL, TOKENIZER, METHODS, independent=True)
    moved = stability(texts, MODEL, TOKENIZER, METHODS, dtypes=["bfloat16"])
    for i, example in enumerate(read):
        for method in METHODS:
            for metric, expected in zip(metrics, (cascading[method], independent[method]), strict=True):
                for part, agreement in zip(expected.parts, expected.agreement[:, i], strict=True):
                    layer = int(part[6:]) if part.startswith("block ") else None
                    name = metric if layer is not None else f"{metric} {part}"
                    assert found[example.id, method, name, layer] == pytest.approx(agreement, abs=1e-6)
            for what, metric in disturbed.items():
                change = moved[method][what]
                assert found[example.id, method, metric, None] == pytest.approx(change.difference[i], abs=2e-5)
                assert found[example.id, method, f"{metric} rho", None] == pytest.approx(change.agreement[i], abs=1e-3)
    assert len(found) == len(read) * 2 * (2 * 5 + 3 * 2)
    assert run.mean("globenc", "randomisation(independent=true) head") == pytest.approx(
        1
    )  # a map does not see the head
    assert run.mean("attcat", "stability(against=bfloat16)") > 1e-4


def second(folder: Path, seed: int = 3, **changes: Any) -> Path:
    tiny.model(seed=seed, **changes).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_consistency_where_two_models_agree(tmp_path: Path) -> None:
    folder, data = second(tmp_path / "second"), examples(30)
    metric = f"consistency(model={folder})"
    run = evaluate(data, [metric], out=tmp_path / "run")
    rows = [row for row in run.table().to_pylist() if row["method"] == "attcat"]
    assert len(rows) == 27
    texts = {each.id: each.text for each in data}
    for row in rows[:12]:
        ours = wherefrom.explain(texts[row["example"]], MODEL, TOKENIZER, "attcat")
        theirs = wherefrom.explain(texts[row["example"]], str(folder), method="attcat")
        if ours.prediction == theirs.prediction:
            assert row["value"] == pytest.approx(correlation.spearman(ours.scores, theirs.scores), abs=1e-6)
        else:
            assert row["value"] is None
            assert row["why"] == "the two models predict different classes"
    assert 0 < run.summary[Key("attcat", metric, None)].count < 27  # both cases occur
    kept = json.loads((tmp_path / "run" / "manifest.json").read_text())["asked"]["models"]
    assert len(kept[str(folder)]["hash"]) == 64
    second(folder, seed=6)
    with pytest.raises(WherefromError, match="another run"):
        evaluate(data, [metric], out=tmp_path / "run")


def test_models_that_cannot_be_compared_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "begin", lambda *_: pytest.fail("something was computed"))
    texts = ["a cat", "a dog"]
    labels = second(
        tmp_path / "labels", id2label={0: "bad", 1: "good", 2: "so"}, label2id={"bad": 0, "good": 1, "so": 2}
    )
    head = tmp_path / "head"
    tiny.model(task="masked-lm").save_pretrained(head)
    TOKENIZER.save_pretrained(head)
    for folder, message in ((labels, "different classes"), (head, "no weights for|is none")):
        with pytest.raises(WherefromError, match=message):
            evaluate(texts, [f"consistency(model={folder})"])
    other = second(tmp_path / "tokens")
    file = other / "tokenizer.json"
    file.write_text(file.read_text().replace('"film"', '"movie"'))
    with pytest.raises(WherefromError, match="different tokens"):
        evaluate(texts, [f"consistency(model={other})"])
    given = [wherefrom.explain(text, MODEL, TOKENIZER, "globenc") for text in texts]
    for message, metric, options in (
        ("must be told its model", "consistency", {}),
        ("way='burnt'; expected 'initial' or 'shuffled'", "randomisation(way=burnt)", {}),
        ("against='rain'; expected 'batch', 'padding', 'float32'", "stability(against=rain)", {}),
        ("of='colour'; expected 'label', 'group' or 'target'", "mdl(of=colour)", {}),
        ("needs a gold label, and none of the 2 rows", "mdl", {}),
        ("explains every example once more", "randomisation", {"explanations": {"mine": given}}),
    ):
        with pytest.raises(WherefromError, match=message):
            evaluate(texts, [metric], **options)
    with pytest.raises(WherefromError, match=r"have the same group; choose another: mdl\(of=label\|group\|target\)"):
        evaluate(examples(5), ["mdl(of=group)"])


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_probes_read_every_layer_of_the_whole_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WINDOW", 16)  # several windows, of shards that are not in the order of the dataset
    data = examples(44)
    metrics = ["cue-dot", "mdl", "compression", "compression(seed=2)", "cue-ap@scores"]
    run = evaluate(data, metrics, ["globenc", "globenc(layers=[0,2])"], out=tmp_path, shard=4, batch_size=3)
    read = [each for i, each in enumerate(data) if i % 10 != 9]
    vectors = representations([each.text for each in read], MODEL, TOKENIZER)
    codes = layer_codes(vectors, [each.label for each in read])
    for number, (code, other) in enumerate(
        zip(codes, layer_codes(vectors, [e.label for e in read], seed=2), strict=True)
    ):
        part, layer = (" embeddings", None) if number == 0 else ("", number - 1)
        for name, value in (
            ("mdl", code.bits),
            ("compression", code.compression),
            ("compression(seed=2)", other.compression),
        ):
            summary = run.summary[Key(OF_THE_MODEL, name + part, layer)]
            assert summary.mean == pytest.approx(value, rel=1e-3)
            assert (summary.count, summary.undefined) == (len(read), 0)
    aligned = [run.mean("globenc", "cue-dot", layer) for layer in range(3)]
    against = compression_against_alignment([code.compression for code in codes], aligned)
    assert run.mean("globenc", "compression against cue-dot") == pytest.approx(against)
    assert Key("globenc(layers=[0,2])", "compression against cue-dot", None) not in run.summary
    assert OF_THE_MODEL not in run.table()["method"].to_pylist()
    assert {each.metric for each in compare_methods(run)} == {"cue-dot", "cue-ap@scores"}
    before = runs.tables(tmp_path)
    (tmp_path / "summary.parquet").unlink()
    assert (
        runs.tables(
            evaluate(data, metrics, ["globenc", "globenc(layers=[0,2])"], out=tmp_path, shard=4, batch_size=3).path
        )
        == before
    )
    run.show(layers=True)


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_probes_need_no_method() -> None:
    run = evaluate(examples(20), ["compression"], [])
    assert {key.method for key in run.summary} == {OF_THE_MODEL}
    assert [key.layer for key in run.summary if key.metric == "compression"] == [0, 1, 2]
    assert len(measured(run, "compression").axes[0].lines[0].get_ydata()) == 3  # which has no interval
    assert means(run)[0] == ["method", "compression in layer 2", "compression embeddings"]


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_vectors_stay_out_of_what_is_held_for_the_tables(tmp_path: Path) -> None:
    evaluate(examples(20), ["compression"], [], out=tmp_path)
    import pyarrow.parquet as parquet

    names = parquet.read_schema(next((tmp_path / "shards").glob("*.parquet"))).names
    assert [name for name in names if name.startswith(store.VECTOR)] == [f"vector {layer}" for layer in range(4)]
    assert not set(parquet.read_schema(tmp_path / "examples.parquet").names) & {"wanted", "vector 0"}


def test_the_page_names_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8")
    cells = [line.split(" | ")[1] for line in page.splitlines() if line.startswith("| ") and line.count(" | ") >= 5]
    assert [each.name for each in wherefrom.metrics() if not any(f"`{each.name}" in cell for cell in cells)] == []
