"""Evaluation: the numbers against plain calls of each part, and everything that must be refused or reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs

import tiny
import wherefrom
from wherefrom.data import Example, token_mask
from wherefrom.errors import RowsLeftOut, WherefromError
from wherefrom.evaluation import compare_methods, compare_runs, export, local, planning, steps, store
from wherefrom.evaluation.summary import Key
from wherefrom.evaluation.task import Item, ShardTask
from wherefrom.evaluation.worker import Worker
from wherefrom.metric import correlation, precision
from wherefrom.metric.erasure import ERASER, erasure
from wherefrom.result.explanation import Explanation

MODEL, TOKENIZER = tiny.model(), tiny.tokenizer()


def examples(count: int, seed: int = 0) -> list[Example]:
    return [
        Example(f"e:{i}", str(row["text"]), label=i % 3, cues=tuple(map(tuple, row["cues"])))  # type: ignore[arg-type]
        for i, row in enumerate(runs.rows(count, seed))
    ]


def evaluate(data: Any, methods: Any = runs.METHODS, metrics: Any = runs.METRICS, **options: Any) -> wherefrom.Run:
    return wherefrom.evaluate(data, MODEL, TOKENIZER, methods, metrics, threads=1, **options)


# The numbers -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_every_number_is_that_of_a_plain_call(tmp_path: Path) -> None:
    data = examples(24)
    metrics = [*runs.METRICS, "spearman:saliency@layers", "pearson:globenc", "aopc(by=mask, protocol=attcat-code)"]
    methods = ["attention-rollout", "globenc"]
    run = evaluate(data, methods, metrics, out=tmp_path / "run")
    records = {
        (row["example"], row["method"], row["metric"], row["layer"]): row["value"] for row in run.table().to_pylist()
    }
    reads = [each for each in data if len(each.text.split()) < 40]
    for example in reads[:6]:
        text = example.text
        saliency = wherefrom.explain(text, MODEL, TOKENIZER, "saliency")
        other = wherefrom.explain(text, MODEL, TOKENIZER, "globenc")
        for method in methods:
            found = wherefrom.explain(text, MODEL, TOKENIZER, method)
            curve = erasure(text, found, MODEL, TOKENIZER)
            kept = erasure(text, found, MODEL, TOKENIZER, shares=ERASER, keep=True)
            theirs = erasure(text, found, MODEL, TOKENIZER, by="mask", protocol="attcat-code")
            cues = token_mask(found, example.cues)
            assert found.maps is not None
            assert found.aggregated is not None
            assert other.maps is not None
            expected: dict[tuple[str, int | None], float] = {
                ("aopc", None): curve.aopc,
                ("log-odds", None): curve.log_odds,
                ("sufficiency", None): kept.mean_drop,
                ("aopc(by=mask, protocol=attcat-code)", None): theirs.aopc,
                ("spearman:saliency", None): correlation.spearman(found.scores, np.abs(saliency.scores)),
                ("cue-dot", None): precision.dot_product(found.scores, cues),
            }
            for layer in range(3):
                row = found.aggregated[layer, 0]
                expected["spearman:saliency@layers", layer] = correlation.spearman(row, np.abs(saliency.scores))
                expected["pearson:globenc", layer] = correlation.pearson(found.maps[layer], other.maps[layer])
                expected["cue-dot", layer] = precision.dot_product(found.maps[layer, 0], cues)
            mine = {(m, layer): v for (e, name, m, layer), v in records.items() if e == example.id and name == method}
            assert mine.keys() == expected.keys()
            for key, value in expected.items():
                assert mine[key] == pytest.approx(value, abs=2e-5), (key, method)


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_the_summary_is_that_of_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WINDOW", 10)  # several windows, whose means are joined
    run = evaluate(examples(36), out=tmp_path / "run", shard=4)
    by_key: dict[Key, list[float]] = {}
    for row in run.table().to_pylist():
        value = np.nan if row["value"] is None else row["value"]
        by_key.setdefault(Key(row["method"], row["metric"], row["layer"]), []).append(value)
    assert run.summary.keys() == by_key.keys()
    for key, values in by_key.items():
        expected, found = correlation.summary(values), run.summary[key]
        assert (found.count, found.undefined) == (expected.count, expected.undefined)
        for name in ("mean", "deviation", "interval"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9)
    # In the order of the dataset, whatever the order of the shards.
    assert run.table("examples")["example"].to_pylist() == [f"e:{i}" for i in range(36)]
    ids = run.table()["example"].to_pylist()
    assert list(dict.fromkeys(ids)) == [f"e:{i}" for i in range(36) if i % 10 != 9]


def test_curves_are_kept() -> None:
    text = "the cat is good"
    curve = evaluate([text, "a bad film"], ["globenc"], ["aopc"]).table("curves").to_pylist()[0]
    direct = erasure(text, wherefrom.explain(text, MODEL, TOKENIZER, "globenc"), MODEL, TOKENIZER)
    assert curve["taken"] == direct.taken.tolist()
    assert np.allclose(curve["probabilities"], direct.probabilities, atol=1e-6)


def test_confidence_looks_at_every_class_and_the_rest_at_one() -> None:
    from wherefrom.metric.confidence import confidence_of

    texts = ["the cat is not good", "a deep film and a bad dog"]
    run = evaluate(texts, ["attcat"], ["confidence", "aopc"])
    plain = evaluate(texts, ["attcat"], ["aopc"])
    assert run.mean("attcat", "aopc") == pytest.approx(plain.mean("attcat", "aopc"), abs=1e-6)
    expected = [confidence_of(wherefrom.explain(text, MODEL, TOKENIZER, "attcat", target="all")) for text in texts]
    assert run.mean("attcat", "confidence") == pytest.approx(np.mean(expected), abs=1e-6)
    chosen = evaluate(texts, ["attcat"], ["confidence", "aopc"], target="LABEL_2").table("examples")
    assert chosen["target"].to_pylist() == ["LABEL_2", "LABEL_2"]


def test_methods_take_options_in_their_names() -> None:
    run = evaluate(
        ["the cat is good", "a bad film"], ["random(seed=1)", "random(seed=2)", "globenc(aggregate=last)"], "aopc"
    )
    assert run.mean("random(seed=1)", "aopc") != run.mean("random(seed=2)", "aopc")
    assert ("globenc(aggregate=last)", "aopc", None) in run.summary


def test_masked_words_answers_and_rationales_are_measured() -> None:
    mlm = tiny.model(task="masked-lm")
    data = [Example("1", "the keys to the cabinets [MASK] good", target="are", foil="is", cues=((4, 8),))]
    found = wherefrom.evaluate(data, mlm, TOKENIZER, ["value-zeroing"], ["cue-ap", "aopc(by=mask)"], threads=1)
    row = found.table("examples").to_pylist()[0]
    assert (row["target"], row["foil"]) == ("are", "is")
    assert found.summary[Key("value-zeroing", "cue-ap", 2)].count == 1
    with pytest.raises(WherefromError, match="deletes tokens"):
        wherefrom.evaluate(data, mlm, TOKENIZER, ["value-zeroing"], ["aopc"])
    answering = tiny.model(task="question-answering")
    asked = [Example("1", ("the cat", "a dog is not a cat"), answer=((2, 5),))]
    run = wherefrom.evaluate(asked, answering, TOKENIZER, ["attention"], ["precision@3"], threads=1)
    assert {key.metric for key in run.summary} == {"precision@3", "precision@3 count", "precision@3 maximum"}
    marked = [Example("1", "a bad film", rationale=((2, 5),)), Example("2", "a good film")]
    run = evaluate(marked, ["attention"], ["token-f1", "iou", "auprc", "iou-f1", "special-rank"])
    assert run.summary[Key("attention", "auprc", None)].undefined == 1
    assert Key("attention", "special-rank [CLS]", None) in run.summary


# Scores made elsewhere -------------------------------------------------------------------------------------


def test_scores_made_elsewhere() -> None:
    texts = ["the cat is good", "a bad film and a dog"]
    ours = [wherefrom.explain(text, MODEL, TOKENIZER, "globenc") for text in texts]
    theirs = [Explanation.from_scores(each.tokens, each.scores) for each in ours]
    run = evaluate(texts, ["globenc"], ["aopc", "spearman:mine"], explanations={"mine": theirs})
    assert run.mean("mine", "aopc") == pytest.approx(run.mean("globenc", "aopc"), abs=1e-6)
    assert run.mean("globenc", "spearman:mine") == pytest.approx(1, abs=1e-6)
    alone = wherefrom.evaluate(texts, MODEL, TOKENIZER, metrics=["aopc"], explanations={"mine": theirs}, threads=1)
    assert alone.mean("mine", "aopc") == pytest.approx(run.mean("mine", "aopc"), abs=1e-6)
    with pytest.raises(WherefromError, match="1 explanations 'mine' for 2 examples"):
        evaluate(texts, [], ["aopc"], explanations={"mine": theirs[:1]})
    with pytest.raises(
        WherefromError, match="other tokens than the model reads: token 1 is 'a' against 'the'; expected"
    ):
        evaluate(texts, [], ["aopc"], explanations={"mine": theirs[::-1]})
    short = [Explanation.from_scores(each.tokens[:-1], each.scores[:-1]) for each in theirs]
    with pytest.raises(WherefromError, match=f": {len(ours[0]) - 1} against {len(ours[0])}, the shorter list being"):
        evaluate(texts, [], ["aopc"], explanations={"mine": short})
    with pytest.raises(WherefromError, match="leave it out"):
        evaluate(texts, [], ["confidence"], explanations={"mine": theirs})


def test_explanations_of_a_phrase_need_its_row_to_name_it() -> None:
    asked: Any = {"model": "wherefrom/lm", "metrics": ["aopc(by=attention)"], "threads": 1}
    phrase = {"mine": [wherefrom.explain("The capital of France is", "wherefrom/lm", target=" a good")]}
    with pytest.raises(WherefromError, match="1 of its 7 are of the phrase 'a good' that it explains; give the row"):
        wherefrom.evaluate(["The capital of France is"], explanations=phrase, **asked)
    rows = [{"text": "The capital of France is", "target": " a good"}]
    assert np.isfinite(wherefrom.evaluate(rows, explanations=phrase, **asked).mean("mine", "aopc(by=attention)"))


# What fails, what is refused -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_failures_are_reported_and_the_others_are_not_lost(tmp_path: Path) -> None:
    data = [*examples(12), Example("empty", "   "), Example("unlabelled", "a cat")]
    asked: Any = {"out": tmp_path / "run", "target": "label"}
    for _ in range(2):  # also of a run that is there already
        with pytest.warns(RowsLeftOut, match="^3 of 14 rows were left out, for one: the text has 62 tokens"):
            run = evaluate(data, ["globenc"], ["aopc"], **asked)
    failed = {row["example"]: row["failure"] for row in run.table("examples").to_pylist() if row["failure"]}
    assert failed.keys() == {"e:9", "empty", "unlabelled"}
    assert "62 tokens but the model reads at most 40" in failed["e:9"]
    assert "gold label" in failed["unlabelled"]
    assert run.summary[Key("globenc", "aopc", None)].count == 11
    assert run.finished is not None
    assert sum(run.finished["failures"].values()) == 3
    lengths = [Example(str(i), "good " * (50 + i)) for i in range(5)]
    run = evaluate([*lengths, Example("short", "good film")], ["globenc"], ["aopc"])
    assert run.finished is not None
    assert list(run.finished["failures"].values()) == [5]  # one reason, whatever the number of tokens
    # One sentence of a batch cannot be explained: the rest of the batch can.
    odd = [Example("1", "a cat", label="LABEL_1"), Example("2", "a dog", label="purple")]
    run = evaluate(odd, ["attcat"], ["aopc"], target="label")
    assert [row["failure"] is None for row in run.table("examples").to_pylist()] == [True, False]
    with pytest.raises(WherefromError, match="none of the 1 examples could be explained"):
        evaluate(["   "], ["globenc"], ["aopc"])


@pytest.mark.parametrize(
    ("message", "methods", "metrics", "options"),
    [
        ("unknown method 'globecn'", "globecn", "aopc", {}),
        ("unknown metric 'aopk'", "globenc", "aopk", {}),
        ("did you mean 'spearman'", "globenc", "spearmann:saliency", {}),
        ("say which", "globenc", "spearman", {}),
        ("compares with no other method", "globenc", "aopc:saliency", {}),
        ("cannot be taken at '@layers'", "globenc", "aopc@layers", {}),
        ("has no option 'way'", "globenc", "aopc(way=mask)", {}),
        (
            "by='fire'; expected 'auto', 'unknown', 'mask', 'pad', 'delete', 'attention', 'mean', 'black' or",
            "globenc",
            "aopc(by=fire)",
            {},
        ),
        ("by=True; expected 'auto', 'unknown'", "globenc", "aopc(by=true)", {}),
        ("shares=0.1; expected a list", "globenc", "aopc(shares=0.1)", {}),
        ("threshold='half'; expected a number", "globenc", "iou-f1(threshold=half)", {}),
        ("shares=\\[0.1, 'half'\\]; expected a list of numbers", "globenc", 'aopc(shares=[0.1,"half"])', {}),
        ("seed=1.5; expected a whole number", "globenc", "randomisation(seed=1.5)", {}),
        ("signs=True; expected 'none', 'reference' or 'both'", "globenc", "kendall(signs=true):saliency", {}),
        ("threshold=2; expected a number above 0 and at most 1", "globenc", "iou-f1(threshold=2)", {}),
        ("magnitude='no'; expected True or False", "globenc", "randomisation(magnitude=no)", {}),
        (
            "'special-rank' cannot have ties='none'; expected 'average' or 'dense'",
            "globenc",
            "special-rank(ties=none)",
            {},
        ),
        (
            "'confidence' cannot have protocol='mine'; expected",
            "globenc",
            "confidence(protocol=mine)",
            {},
        ),
        ("has no option 'steps'", "globenc(steps=2)", "aopc", {}),
        ("saliency' has none", "globenc", "pearson:saliency", {}),
        ("needs a human rationale, and none of the 4 rows", "globenc", "auprc", {}),
        ("needs a gold answer", "globenc", "precision@5", {}),
        ("stands twice among the methods", "globenc,globenc", "aopc", {}),
        ("no methods to evaluate", "", "aopc", {}),
        ("no metrics to evaluate by", "globenc", "", {}),
        ("unknown engine", "globenc", "aopc", {"engine": "steam"}),
        ("workers=0", "globenc", "aopc", {"workers": 0}),
        (r"no row of given has a label .* name the column", "globenc", "aopc", {"target": "label"}),
        ("unknown target 'nosuch'; the classes of this model", "globenc", "aopc", {"target": "nosuch"}),
        ("target='all'", "globenc", "aopc", {"target": "all"}),
        ("another method or class", "globenc", "aopc", {"data": None}),
    ],
)
def test_what_is_refused_before_anything_is_computed(
    message: str, methods: str, metrics: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "begin", lambda *_: pytest.fail("something was computed"))
    data = options.pop("data", ["a cat", "a dog", "a good film", "a bad film"])
    if data is None:
        message = "no data to evaluate on"
    with pytest.raises(WherefromError, match=message):
        evaluate(data, methods, metrics, **options)


def test_another_command_in_the_folder_is_refused(tmp_path: Path) -> None:
    texts = ["a cat", "a dog is not a cat"]
    evaluate(texts, ["globenc"], ["aopc"], out=tmp_path)
    evaluate(texts, ["globenc"], ["aopc"], out=tmp_path)
    with pytest.raises(WherefromError, match=r"another run \(asked methods: globenc there, alti now\)"):
        evaluate(texts, ["alti"], ["aopc"], out=tmp_path)
    with pytest.raises(WherefromError, match="data fingerprint"):
        evaluate(["a cat", "a dog is a cat"], ["globenc"], ["aopc"], out=tmp_path)
    with pytest.raises(WherefromError, match="model hash"):
        wherefrom.evaluate(texts, tiny.model(seed=3), TOKENIZER, ["globenc"], ["aopc"], out=tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(WherefromError, match="not the manifest of a wherefrom run"):
        evaluate(texts, ["globenc"], ["aopc"], out=tmp_path)


def test_two_runs_do_not_work_on_one_folder(tmp_path: Path) -> None:
    from wherefrom.evaluation.manifest import locked

    with locked(tmp_path), pytest.raises(WherefromError, match="another process is working"):
        evaluate(["a cat"], ["globenc"], ["aopc"], out=tmp_path)
    evaluate(["a cat"], ["globenc"], ["aopc"], out=tmp_path)


# Going on --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_a_damaged_or_half_written_shard_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, options = examples(30), {"out": tmp_path, "shard": 5}
    run = evaluate(data, **options)
    before = runs.tables(tmp_path)
    every = sorted((tmp_path / "shards").iterdir())
    assert len(every) == 6
    damaged = bytearray(every[1].read_bytes())
    damaged[len(damaged) // 2] ^= 1  # one bit
    every[1].write_bytes(damaged)
    every[2].write_bytes(every[2].read_bytes()[:100])
    every[3].unlink()
    (tmp_path / "shards" / f".{every[3].name}.77.part").write_bytes(b"half")
    (tmp_path / "records.parquet").write_bytes(b"lost")
    computed = []
    begin = Worker.begin
    monkeypatch.setattr(Worker, "begin", lambda self, task: computed.append(task.name) or begin(self, task))
    evaluate(data, **options)
    assert sorted(computed) == [path.name.partition(".")[0] for path in every[1:4]]
    assert runs.tables(tmp_path) == before
    assert not list((tmp_path / "shards").glob(".*"))
    computed.clear()
    evaluate(data, **options)
    assert not computed
    assert run.finished is not None


def test_an_unfinished_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = [0]

    def put(folder: Path, name: str, content: bytes) -> Path:
        stopped[0] += 1
        if stopped[0] == 3:
            raise KeyboardInterrupt
        return original(folder, name, content)

    original = store.put
    monkeypatch.setattr(store, "put", put)
    with pytest.raises(KeyboardInterrupt):
        evaluate(examples(20), out=tmp_path, shard=4)
    with pytest.raises(WherefromError, match="is not finished; repeat its command"):
        wherefrom.Run(tmp_path).table()
    assert len(list((tmp_path / "shards").iterdir())) == 2


def test_a_shard_does_not_depend_on_who_computes_it_or_after_what() -> None:
    setting = steps.Setting(MODEL, runs.METHODS, runs.METRICS, tokenizer=TOKENIZER)
    items = [Item(row, example) for row, example in enumerate(examples(16))]
    tasks = planning.cut(0, items, Worker.open(setting).try_read, 4)
    assert [min(task.tokens) for task in tasks] == sorted(min(task.tokens) for task in tasks)
    first = {done.task.name: runs.shard(done.content) for done in local.here(Worker.open(setting), iter(tasks))}
    again = {done.task.name: runs.shard(done.content) for done in local.here(Worker.open(setting), iter(tasks[::-1]))}
    assert first == again


# Reading runs ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_two_runs_and_two_methods_compare_on_shared_examples(tmp_path: Path) -> None:
    from wherefrom.metric.significance import paired

    data = examples(30)
    one = evaluate(data, ["globenc", "attention-rollout"], ["aopc"], out=tmp_path / "one")
    other = wherefrom.evaluate(
        data[:20], tiny.model(seed=5), TOKENIZER, ["globenc"], ["aopc", "cue-dot"], out=tmp_path / "other"
    )
    (found,) = compare_runs(one, other)
    key = Key("globenc", "aopc", None)
    a, b = one.values(key), other.values(key)
    expected = paired([a[each] for each in b], list(b.values()))
    assert found.found == expected
    assert found.found.count == 18
    (between,) = compare_methods(one)
    assert (between.first, between.second) == ("globenc", "attention-rollout")
    assert between.found.difference == pytest.approx(
        one.mean("globenc", "aopc") - one.mean("attention-rollout", "aopc"), abs=1e-12
    )
    with pytest.raises(WherefromError, match="one method"):
        compare_methods(other)


def test_the_commands_evaluate_show_compare_and_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from wherefrom.cli import app

    monkeypatch.chdir(tmp_path)
    runs.model_folder(tmp_path / "model")
    data = runs.data_file(tmp_path / "data.jsonl", 12)

    def called(*arguments: str) -> str:
        found = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.output

    asked = ("--model", "model", "--data", str(data), "--metrics", "aopc,cue-dot", "--threads", "1")
    shown = called("evaluate", *asked, "--methods", "globenc,random(seed=3)", "--out", "runs/first", "--limit", "11")
    assert "random(seed=3)" in shown
    assert "1 could not be explained: the text has 62 tokens" in shown
    called("evaluate", *asked, "--methods", "globenc", "--out", "runs/second")
    (tmp_path / "runs/third").mkdir()
    (tmp_path / "runs/third/manifest.json").write_text("{")
    assert called("runs", "list").count(" finished") == 2  # a third that cannot be read does not hide them
    assert "runs/third: 'runs/third/manifest.json' cannot be read" in called("runs", "list")
    assert "cue-dot" in called("runs", "show", "runs/first", "--layers")
    assert "p (W)" in called("runs", "compare", "runs/first", "runs/second", "-f", "md")
    beside = called("runs", "compare", "runs/first", "runs/second")
    assert beside.endswith("of the first run alone, and not compared: random(seed=3)\n")
    assert called("runs", "compare", "runs/first", "-f", "csv").count("globenc,random(seed=3)") == 2
    csv = called("runs", "export", "runs/first", "--format", "csv")
    assert csv == (tmp_path / "runs/first/summary.csv").read_text()
    latex = called("runs", "export", "runs/first", "--format", "latex", "--layers")
    assert r"\begin{tabular}" in latex
    assert r"\textbf{" in latex
    called("runs", "export", "runs/first", "--out", "means.md")
    for idle in (("--kind", "bars"), ("--figure", "aopc", "--format", "csv", "--out", "a.png")):
        with pytest.raises(WherefromError, match="is of a figure" if idle[0] == "--kind" else "are of the table"):
            called("runs", "export", "runs/first", *idle)
    for name, expected in {
        "means.csv": csv,
        "means.tex": called("runs", "export", "runs/first", "-f", "latex"),
    }.items():
        called("runs", "export", "runs/first", "--out", name)  # as it ends
        assert Path(name).read_text(encoding="utf-8") == expected
    assert (tmp_path / "means.md").read_text().startswith("| method | aopc | cue-dot |")
    called("runs", "export", "runs/first", "--figure", "cue-dot", "--out", "cues.png")
    assert (tmp_path / "cues.png").read_bytes().startswith(b"\x89PNG")
    assert "spearman:METHOD" in called("metrics")
    for own in ("manifest.json", "finished.json", "summary.csv", "records.parquet"):
        kept = (tmp_path / "runs/first" / own).read_bytes()
        with pytest.raises(WherefromError, match=f"'runs/first/{own}' is a file of the run"):
            called("runs", "export", "runs/first", "--out", f"runs/first/{own}")
        assert (tmp_path / "runs/first" / own).read_bytes() == kept
    with pytest.raises(WherefromError, match=r"'means.xlsx' ends in none of .csv, .tex, .md; choose one, or"):
        called("runs", "export", "runs/first", "--out", "means.xlsx")
    called("runs", "export", "runs/first", "--out", "means.txt", "--format", "md")  # as it is advised
    with pytest.raises(WherefromError, match="unknown format 'docx'"):
        called("runs", "export", "runs/first", "--format", "docx")
    with pytest.raises(WherefromError, match="not a run folder"):
        called("runs", "show", "model")
    manifest = json.loads((tmp_path / "runs/first/manifest.json").read_text())
    assert manifest["model"]["hash"]
    assert manifest["versions"]["torch"]
    assert manifest["data"]["rows"] == 11


def test_tasks_can_be_pickled() -> None:
    import pickle

    worker = Worker.open(steps.Setting(MODEL, runs.METHODS, runs.METRICS, tokenizer=TOKENIZER))
    (task,) = planning.cut(0, [Item(0, examples(1)[0])], worker.try_read, 4)
    arrived: ShardTask = pickle.loads(pickle.dumps(task))
    assert (arrived.name, arrived.tokens) == (task.name, task.tokens)
    assert arrived.rows[0].item == task.rows[0].item


def test_a_command_is_written_down_as_it_can_be_repeated() -> None:
    assert steps._called(["/some/where/wherefrom/__main__.py", "evaluate", "-o", "x"]) == [
        *("python", "-m", "wherefrom"),
        *("evaluate", "-o", "x"),
    ]
    assert steps._called(["wherefrom", "evaluate"]) == ["wherefrom", "evaluate"]


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_a_text_that_is_too_long_may_be_cut(tmp_path: Path) -> None:
    texts = ["a good film", "good " * 600]
    how: dict[str, Any] = {"methods": ["attention"], "metrics": ["aopc"]}
    found = wherefrom.evaluate(texts, out=tmp_path / "whole", **how)
    assert "shorten it, or have it cut with truncate=True" in str(found.finished)
    assert not wherefrom.evaluate(texts, out=tmp_path / "cut", truncate=True, **how).finished["failures"]


def test_where_nothing_could_be_explained_the_folder_is_free_for_the_next_try(tmp_path: Path) -> None:
    how: dict[str, Any] = {"methods": ["attention"], "metrics": ["aopc"], "out": tmp_path / "run"}
    with pytest.raises(WherefromError, match=r"none of the 2 examples could be explained .* cut with truncate=True"):
        wherefrom.evaluate(["good " * 600, "dull " * 600], **how)
    assert not wherefrom.evaluate(["good " * 600, "dull " * 600], truncate=True, **how).failures  # as it was advised


def test_the_best_correlation_goes_where_the_other_metric_is_better() -> None:
    """Fewer probes are better: so is a compression that rises where they fall."""
    found = {
        Key(method, f"compression against {other}", None): correlation.Summary(mean, 0.1, 0.1, 9, 0)
        for other in ("cue-probes", "cue-ap")
        for method, mean in (("alti", -0.7), ("random", 0.5))
    }
    assert export._best("compression against cue-probes", found) == "alti"
    assert export._best("compression against cue-ap", found) == "random"
