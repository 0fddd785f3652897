"""Evaluation on data that is not as one would have it: a value is right, or it is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import runs
import torch

import tiny
import wherefrom
from wherefrom.data import Dataset, Example, up_to_mask
from wherefrom.errors import RowsLeftOut, WherefromError, WherefromWarning
from wherefrom.evaluation import compare_methods, compare_runs
from wherefrom.evaluation.export import _written, comparison, described, means, show, show_comparison
from wherefrom.metric import correlation
from wherefrom.result.explanation import Explanation

MODEL, TOKENIZER = tiny.model(), tiny.tokenizer()
TEXTS = ["the film is good", "the film is not good", "good and meaningful film !"]


def evaluate(data: Any, methods: Any, metrics: Any, model: Any = MODEL, **options: Any) -> wherefrom.Run:
    return wherefrom.evaluate(data, model, TOKENIZER, methods, metrics, threads=1, **options)


def test_what_was_cut_away_is_not_missed(capsys: Any) -> None:
    """A cue or an answer behind the cut has no share of the scores, rather than one of 0."""
    text = "good " * 60 + "film"
    data = [
        Example("cut", text, cues=((300, 304),), answer=((300, 304),)),
        Example("whole", "good film", cues=((0, 4),), answer=((0, 4),)),
    ]
    run = evaluate(data, "globenc", "cue-dot@scores, cue-probes@scores, precision@2", truncate=True)
    for metric in ("cue-dot@scores", "cue-probes@scores"):
        assert run.summary["globenc", metric, None].count == 1
        assert run.summary["globenc", metric, None].undefined == 1
    assert run.summary["globenc", "precision@2", None].undefined == 1
    run.show(layers=True)
    said = capsys.readouterr().out
    assert "(n = 1)" in said  # a mean over fewer examples than were explained
    assert "no metric of this run has layers" in said


def test_the_seed_of_a_run_is_that_of_its_noise() -> None:
    one, other, named = (
        evaluate(TEXTS, method, "aopc", seed=seed)
        for method, seed in (("random", 0), ("random", 1), ("random(seed=1)", 0))
    )
    assert one.mean("random", "aopc") != other.mean("random", "aopc")
    assert other.mean("random", "aopc") == named.mean("random(seed=1)", "aopc")


@pytest.mark.filterwarnings("ignore::wherefrom.errors.RowsLeftOut")
def test_a_next_token_is_not_the_word_at_a_mask() -> None:
    model = tiny.model("gpt2", task="causal-lm")
    data = [
        Example("mask", "the [MASK] is good", target="film"),
        Example("end", "the film is", target="good"),
    ]
    run = evaluate(data, "attention-rollout", "aopc(by=unknown)", model)
    failures = {row["example"]: row["failure"] for row in run.table("examples").to_pylist()}
    assert "predicts the next token" in failures["mask"]
    assert failures["end"] is None


@pytest.mark.parametrize("measure", ["spearman", "kendall", "pearson"])
@pytest.mark.parametrize("signs", ["none", "reference", "both"])
def test_all_methods_are_compared_with_one_reference(measure: str, signs: str) -> None:
    """Whether a method has signs must not choose what it is compared with, nor whether the reference has any."""
    tokens = wherefrom.explain("good film", MODEL, TOKENIZER).tokens
    scores = {"signed": [0.1, 2, -1, 0.5], "unsigned": [0.1, 2, 1, 0.5], "drop": [0.2, -3, 1, 0.5]}
    given = {name: [Explanation.from_scores(tokens, each)] for name, each in scores.items()}
    given["even"] = [Explanation.from_scores(tokens, np.abs(scores["drop"]))]
    names = {each: f"{measure}(signs={signs}):{each}@scores" for each in ("drop", "even")}
    run = evaluate(["good film"], (), ", ".join(names.values()), explanations=given)
    correlate = getattr(correlation, measure)
    for method in ("signed", "unsigned"):
        for reference, name in names.items():
            ours = scores[method] if signs == "both" else np.abs(scores[method])
            theirs = given[reference][0].scores if signs != "none" else np.abs(scores["drop"])
            assert run.mean(method, name) == pytest.approx(correlate(ours, theirs))


def test_scores_are_compared_by_magnitude_unless_told_otherwise() -> None:
    tokens = wherefrom.explain("good film", MODEL, TOKENIZER).tokens
    mine, other = ([Explanation.from_scores(tokens, each)] for each in ([0, 2, 1, 0.5], [0, -3, 1, 0.5]))
    run = evaluate(["good film"], (), "spearman:other", explanations={"mine": mine, "other": other})
    assert run.mean("mine", "spearman:other") == pytest.approx(1)  # with the other's signs it would be -0.2
    with pytest.raises(
        WherefromError, match="'spearman' cannot have signs='some'; expected 'none', 'reference' or 'both'"
    ):
        evaluate(["good film"], "attention", "spearman(signs=some):saliency")


def test_what_is_given_must_be_explanations() -> None:
    with pytest.raises(WherefromError, match="other things than explanations"):
        evaluate(["good film"], (), "aopc", explanations={"mine": [1]})  # type: ignore[dict-item]


@pytest.mark.parametrize("wrong", [None, 3, [1, 2], ("a", "b", "c")])
def test_what_is_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(WherefromError, match="expected a text, or a pair of texts"):
        evaluate(["good film", wrong], "attention", "aopc")


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(WherefromError, match="cannot make the run folder"):
        evaluate(TEXTS, "attention", "aopc", out=tmp_path / "file")


def test_a_metric_of_layers_alone_is_shown_at_the_last() -> None:
    run = evaluate(TEXTS, ["globenc", "alti"], ["spearman:saliency@layers", "aopc"])
    head, first, _ = means(run)
    assert head == ["method", "spearman:saliency@layers in layer 2", "aopc"]
    found = run.summary["globenc", "spearman:saliency@layers", 2]
    assert first[1].startswith(f"{found.mean:.3f}")


def test_two_runs_say_which_method_is_compared(tmp_path: Path) -> None:
    one, other = (evaluate(TEXTS, ["globenc", "alti"], "aopc", out=tmp_path / name) for name in ("one", "other"))
    head, *rows = comparison(compare_runs(one, other))
    assert [row[head.index("method")] for row in rows] == ["globenc", "alti"]
    assert "method" not in comparison(compare_methods(one))[0]


def test_runs_on_other_content_under_one_name_are_refused(tmp_path: Path) -> None:
    found = []
    for seed in (0, 1):
        (tmp_path / str(seed)).mkdir()
        data = runs.data_file(tmp_path / str(seed) / "reviews.jsonl", 5, seed)
        found.append(evaluate(data, "attention", "aopc", out=tmp_path / f"run{seed}"))
    with pytest.raises(WherefromError, match="different content"):
        compare_runs(*found)


def test_texts_with_one_id_and_different_content_are_not_paired(tmp_path: Path) -> None:
    one, same, other = (
        evaluate(texts, "attention", "aopc", out=tmp_path / str(i))
        for i, texts in enumerate((TEXTS, TEXTS, [*TEXTS[:-1], "another film"]))
    )
    assert compare_runs(one, same)[0].found.difference == 0
    with pytest.raises(WherefromError, match="1 examples have one id in both runs and different content"):
        compare_runs(one, other)


def test_a_comparison_fits_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    one, other = (
        evaluate(TEXTS, ["globenc", "attention-rollout"], ["aopc", "log-odds"], out=tmp_path / name)
        for name in ("one", "other")
    )
    long = replace(compare_methods(one)[0], first="transformer-attribution", second="norm-fixed-residual-flow")
    for compared in (compare_runs(one, other), compare_methods(one), [*compare_methods(one), long]):
        show_comparison(compared)
        shown = capsys.readouterr().out
        assert "…" not in shown
        assert "attention-rollout" in shown
        assert all(cell in shown for row in comparison(compared) for cell in row[-6:])
        assert max(map(len, shown.splitlines())) <= 80
        said = " ".join(shown.split())
        assert f"corrected by Holm for all {len(compared)} comparisons" in said
        assert "Cohen's d_z" in said


def test_a_small_difference_is_not_shown_as_none(tmp_path: Path) -> None:
    run = evaluate(TEXTS, ["globenc", "alti"], "aopc", out=tmp_path / "run")
    (each,) = compare_methods(run)
    small = replace(each, found=replace(each.found, difference=-0.00012, interval=(-0.00031, 0.0)))
    head, row = comparison([small])
    assert row[head.index("difference")] == "-1.2e-04"
    assert row[head.index("99 % interval")] == "-3.1e-04 +0.000"


def test_the_first_rows_or_some_drawn_by_the_seed(tmp_path: Path) -> None:
    data = runs.data_file(tmp_path / "reviews.jsonl", 12)

    def ids(**options: Any) -> list[str]:
        return list(evaluate(data, "attention", "aopc", limit=4, **options).contents)

    assert ids() == [f"reviews:{row}" for row in range(1, 5)]
    assert ids(draw=True) == ids(draw=True) != ids(draw=True, seed=1) != ids()
    with pytest.raises(WherefromError, match="not how many"):
        evaluate(data, "attention", "aopc", draw=True)


@pytest.mark.parametrize("draw", [False, True])
def test_dropped_rows_are_counted_and_named(tmp_path: Path, draw: bool) -> None:
    data = tmp_path / "reviews.csv"
    data.write_text('text\na good film\n""\na bad film\na cat\n', encoding="utf-8")
    with pytest.warns(RowsLeftOut, match=r"^1 of 4 rows was left out: row 2: 'text' is empty; run.show\(\) says more"):
        run = evaluate(data, "attention", "aopc", limit=3, draw=draw)
    assert described(run)[0].endswith(" on reviews.csv")  # whose split has no name but the file's
    assert described(run)[1:3] == ["3 rows, 1 more dropped in reading", "dropped: row 2: 'text' is empty"]
    assert list(run.contents) == ["reviews:1", "reviews:3", "reviews:4"]


def test_rows_given_as_dicts_are_dropped_as_those_of_a_file() -> None:
    data: list[dict[str, Any]] = [{"text": "a good film", "label": 1}, {"text": "", "label": 0}, {"text": 3}]
    data.append({"text": "a cat", "group": "\ud800"})
    with pytest.warns(RowsLeftOut, match=r"^3 of 4 rows were left out, for one: row 2: 'text' is empty; row 3: 'text'"):
        run = evaluate(data, "attention", "aopc")
    assert list(run.contents) == ["0"]
    assert "row 4: its group" in described(run)[2]
    with pytest.raises(WherefromError, match=r"^given: nothing to read: all 1 rows are broken: row 1: 'text' is empty"):
        evaluate([{"text": ""}], "attention", "aopc")
    with pytest.raises(WherefromError, match=r"4 explanations 'mine' for 1 examples; .* these cannot: row 2: 'text'"):
        evaluate(data, (), "aopc", explanations={"mine": [Explanation.from_scores(["a"], [1.0])] * 4})


def test_a_mask_before_a_classifier_is_warned_of() -> None:
    data = [Example("1", "the keys [MASK] good", target="are", foil="is"), Example("2", "[MASK] it good")]
    with pytest.warns(WherefromWarning, match="2 of the 2 texts hold"):
        evaluate(data, "attention", "aopc")
    cut = up_to_mask(Dataset("mine", "", lambda: iter(data)))
    assert [each.text for each in cut] == ["the keys"]
    assert [(each.row, each.reason) for each in cut.dropped] == [(2, "nothing stands before the mask of 2")]


def test_maps_compared_as_globencs_code_does_are_maps() -> None:
    with pytest.raises(WherefromError, match="compares whole maps; leave '@scores' out"):
        evaluate(TEXTS, "globenc", "pearson(protocol=globenc-code):alti@scores")


def test_rationales_are_ranked_among_the_words() -> None:
    tokens = wherefrom.explain("a bad film", MODEL, TOKENIZER).tokens
    mine = [Explanation.from_scores(tokens, [9, 1, 2, 0, 8])]  # the tokenizer's own tokens come first
    data = [Example("1", "a bad film", rationale=((2, 5),))]
    metrics = ["token-f1", "iou", "auprc", "iou-f1"]
    run = evaluate(data, (), metrics, explanations={"mine": mine})
    assert [run.mean("mine", metric) for metric in metrics] == pytest.approx([1, 1, 1, 1])


def test_rationales_of_a_pair_are_ranked_among_the_words_of_its_second_text() -> None:
    pair = ("a dog", "a bad film")
    tokens = wherefrom.explain(pair, MODEL, TOKENIZER).tokens
    assert tokens[4:7] == ["a", "bad", "film"]
    mine = [Explanation.from_scores(tokens, [9, 7, 7, 9, 1, 2, 0, 8])]  # what was marked in the premise is not known
    data = [Example("1", pair, rationale=((2, 5),))]
    metrics = ["token-f1", "iou", "auprc", "iou-f1"]
    run = evaluate(data, (), metrics, explanations={"mine": mine})
    assert [run.mean("mine", metric) for metric in metrics] == pytest.approx([1, 1, 1, 1])


def test_a_metric_without_values_does_not_hide_the_others() -> None:
    data = [Example(str(i), text, cues=((0, 3),) if i == 0 else ()) for i, text in enumerate(TEXTS)]
    run = evaluate(data, ["globenc", "alti"], ["cue-dot@scores", "aopc"])
    assert [each.metric for each in compare_methods(run)] == ["aopc"]


def test_many_metrics_are_shown_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    run = evaluate(TEXTS, ["attention-rollout"], ["aopc", "log-odds", "area", "comprehensiveness", "sufficiency"])
    show(run)
    shown = capsys.readouterr().out
    head, cells = means(run)
    assert all(cell in shown for cell in (*head, *cells))


def test_the_callers_random_numbers_and_threads_stay_theirs() -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    wherefrom.evaluate(TEXTS, MODEL, TOKENIZER, "random", "aopc", threads=threads + 1)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_a_regression_is_measured_by_its_number() -> None:
    number = wherefrom.open_model(tiny.model(num_labels=1), TOKENIZER)
    run = wherefrom.evaluate(TEXTS, number, methods=["saliency"], metrics=["lerf-morf(of=logit)"], threads=1)
    assert np.isfinite(run.mean("saliency", "lerf-morf(of=logit)"))
    with pytest.raises(WherefromError, match=r"a regression has no log-probability, which morf measures"):
        wherefrom.evaluate(TEXTS, number, methods=["saliency"], metrics=["morf"], threads=1)
    with pytest.raises(WherefromError, match="a regression has no probability, which insertion measures"):
        wherefrom.evaluate(TEXTS, number, methods=["saliency"], metrics=["insertion(by=mask)"], threads=1)
    several = wherefrom.open_model(tiny.model(num_labels=3, problem_type="regression"), TOKENIZER)
    for soft in ("soft-sufficiency", "soft-comprehensiveness(distance=hellinger)"):
        with pytest.raises(
            WherefromError, match=r"a regression has no probabilities, which soft .*lerf-morf\(of=logit"
        ):
            wherefrom.evaluate(TEXTS, several, methods=["saliency"], metrics=[soft], threads=1)
    with pytest.raises(WherefromError, match="a regression has no probabilities; say of='logit'"):
        wherefrom.evaluate(TEXTS, number, methods=["saliency"], metrics=["aopc"], threads=1)


def test_labels_that_do_not_compete_are_dimmed_one_by_one() -> None:
    """Soft comprehensiveness of a classifier of several labels at once, by the sigmoid of the explained one."""
    model, metric = (
        tiny.model(num_labels=3, problem_type="multi_label_classification"),
        "soft-comprehensiveness(samples=4)",
    )
    run = wherefrom.evaluate(TEXTS[:1], model, TOKENIZER, methods=["saliency"], metrics=[metric], threads=1)
    found = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="saliency")
    ids = TOKENIZER(TEXTS[0])["input_ids"]
    words = model.get_input_embeddings().weight[ids]

    def p(kept: Any) -> float:
        with torch.no_grad():
            logits = model(inputs_embeds=(words * torch.as_tensor(kept).to(words))[None]).logits[0]
        return float(logits[found.target.index].sigmoid())

    whole, none = p(np.ones(words.shape)), p(np.zeros(words.shape))
    share = found.scores / found.scores.max()
    draws = np.random.default_rng([0, *ids]).random((4, *words.shape))
    gone = np.mean([max(0, whole - p(each < 1 - share[:, None])) for each in draws])
    assert whole - none > 1e-4
    assert run.mean("saliency", metric) == pytest.approx(gone / (whole - none), rel=1e-4)


def test_a_token_classifiers_maps_are_measured_and_no_output() -> None:
    tagger = wherefrom.open_model(tiny.model(task="token-classification"), TOKENIZER)
    run = wherefrom.evaluate(TEXTS, tagger, methods=["alti"], metrics=["spearman:attention"], threads=1)
    assert np.isfinite(run.mean("alti", "spearman:attention"))
    for method, metric, what in (
        ("alti", "comprehensiveness", "'comprehensiveness' measures"),
        ("alti", "aopc(by=mask)", r"'aopc\(by=mask\)' measures"),
        ("alti", "lerf-morf", "'lerf-morf' measures"),
        ("alti", "spearman:saliency", "'saliency' explains"),
        ("cp-lrp", "spearman:attention", "'cp-lrp' explains"),
    ):
        with pytest.raises(
            WherefromError, match=f"{what} one output, and .* is a token classifier, which has one for every"
        ):
            wherefrom.evaluate(TEXTS, tagger, methods=[method], metrics=[metric], threads=1)


def test_a_mean_of_layers_asks_for_the_layer() -> None:
    run = evaluate(TEXTS, ["globenc"], ["randomisation"])
    with pytest.raises(
        WherefromError, match=r"'randomisation' of 'globenc' is measured layer by layer; say which: layer=0"
    ):
        run.mean("globenc", "randomisation")


def test_a_table_of_pandas_is_its_rows() -> None:
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, (0, 1, 2), strict=True)]
    by_rows, by_table = (evaluate(data, "attcat", "aopc") for data in (rows, pandas.DataFrame(rows)))
    assert by_table.mean("attcat", "aopc") == by_rows.mean("attcat", "aopc")
    assert by_table.table("examples").to_pylist() == by_rows.table("examples").to_pylist()


@pytest.mark.parametrize("name", ["examples.parquet", "summary.csv"])
def test_tables_of_no_run_are_not_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("somebody's", encoding="utf-8")
    with pytest.raises(WherefromError, match=f"holds {name} of no run, which this one would replace"):
        evaluate(TEXTS, "attcat", "aopc", out=tmp_path)
    assert {each.name for each in tmp_path.iterdir()} <= {name, ".lock"}
    assert (tmp_path / name).read_text(encoding="utf-8") == "somebody's"


def test_latex_has_minus_signs_and_no_hyphens_before_numbers() -> None:
    rows = [["", "log-odds"], ["cp-lrp", "**-1.356 ± 0.941**"], ["random", "-0.100"]]
    written = _written(rows, "latex")
    assert r"cp-lrp & \textbf{$-$1.356 $\pm$ 0.941} \\" in written
    assert r"random & $-$0.100 \\" in written
