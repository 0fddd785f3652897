"""AttCAT's experiments, each recomputed from the paper's formula or the authors' notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text

import tiny
import wherefrom
from wherefrom.data import Example
from wherefrom.errors import NotDefined, UnsupportedModel
from wherefrom.papers import Result
from wherefrom.papers.attcat import ROWS

TOKENIZER = tiny.tokenizer()
QUESTIONS = [
    Example("1", ("is the film good ?", "the deep and meaningful film is not very good !"), answer=((8, 18), (4, 18))),
    Example("2", ("what is good ?", "the cats and the dogs of the film are not good ."), answer=((4, 8),)),
]


def test_answer_precision_adds_the_scores_towards_start_and_end() -> None:
    """Σ_l (∂y/∂h^l · h^l) ā^l for the predicted start's logit, the same for the end's, and the top K of their sum."""
    model: Any = tiny.model(task="question-answering", dtype=torch.float64).eval()
    model.set_attn_implementation("eager")
    k, expected = 3, {"sum": [], "magnitudes": []}
    for example in QUESTIONS:
        encoding = TOKENIZER(*example.text, return_tensors="pt", return_offsets_mapping=True)
        offsets, sides = encoding.pop("offset_mapping")[0].tolist(), encoding.sequence_ids(0)
        out = model(**encoding, output_hidden_states=True, output_attentions=True)
        start = int(out.start_logits[0].argmax())
        end = start + int(out.end_logits[0, start:].argmax())
        by_edge = []
        for logit in (out.start_logits[0, start], out.end_logits[0, end]):
            gradients = torch.autograd.grad(logit, out.hidden_states[:-1], retain_graph=True)
            layers = zip(gradients, out.hidden_states, out.attentions, strict=False)
            by_edge.append(sum((g * h)[0].sum(-1) * a[0].mean((0, 1)) for g, h, a in layers).detach().numpy())
        spans = [(a, b) if side == 1 else (0, 0) for (a, b), side in zip(offsets, sides, strict=True)]
        answer = {i for i, (a, b) in enumerate(spans) if any(a < last and first < b for first, last in example.answer)}
        for combine, scores in (("sum", sum(by_edge)), ("magnitudes", sum(np.abs(edge) for edge in by_edge))):
            top = sorted(range(len(scores)), key=lambda i, scores=scores: -scores[i])[:k]
            expected[combine].append((len(answer & {*top}), min(k, len(answer))))
    metrics = {combine: f"answer-precision(combine={combine})@{k}" for combine in expected}
    run = wherefrom.evaluate(QUESTIONS, model, TOKENIZER, ["attcat"], list(metrics.values()), threads=1)
    for combine, name in metrics.items():
        counts, maxima = zip(*expected[combine], strict=True)
        assert run.mean("attcat", f"{name} count") == np.mean(counts)
        assert run.mean("attcat", f"{name} maximum") == np.mean(maxima)
        assert run.mean("attcat", name) == pytest.approx(np.mean(counts) / k)


def test_answer_precision_needs_a_model_that_answers() -> None:
    with pytest.raises(NotDefined, match="answers questions"):
        wherefrom.evaluate(QUESTIONS, tiny.model(), TOKENIZER, ["attcat"], ["answer-precision@3"], threads=1)


# Figure 3 -------------------------------------------------------------------------------------------------


def saved(folder: Path, task: str = "question-answering", variant: str = "bert", **changes: Any) -> str:
    tiny.model(variant, task, **{"max_position_embeddings": 512, **changes}).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return str(folder)


def reproduced(name: str, **arguments: Any) -> Result:
    result = wherefrom.reproduce(name, **arguments)
    assert isinstance(result, Result)
    return result


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("models") / "answering")


@pytest.fixture(scope="module")
def squad(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two questions that have an answer and one that has none."""
    path = tmp_path_factory.mktemp("data") / "questions.jsonl"
    rows: list[dict[str, Any]] = [
        {"text": example.text[0], "pair": example.text[1], "answer": [list(span) for span in example.answer]}
        for example in [*QUESTIONS, Example("3", ("what is bad ?", "the film is good ."))]
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


def test_figure_3_counts_the_first_answer_and_its_maximum(answering: str, squad: str) -> None:
    """Of two gold answers the first, which is shorter than their union."""
    result = reproduced("attcat/figure3", model=answering, data=squad, k=2)
    (column,) = result.table.columns
    lengths = [
        sum(
            first < end and start < last
            for (start, end), side in zip(encoding["offset_mapping"], encoding.sequence_ids(), strict=True)
            if side == 1
        )
        for example in QUESTIONS
        for encoding in [TOKENIZER(*example.text, return_offsets_mapping=True)]
        for first, last in example.answer[:1]
    ]
    assert result.table.mean("maximum", column) == np.mean([min(2, length) for length in lengths])
    assert result.table.ours["AttCAT", column].count == 2  # the question without an answer is left out
    assert [row for row in result.table.rows if row != "maximum"] == list(ROWS)
    assert result.table.sources[0].endswith("K = 2")
    everything = reproduced("attcat/figure3", model=answering, data=squad, k=1000, rows="notebook")
    assert {row for row, _ in everything.table.ours} == {"RawAtt", "Rollout", "AttCAT", "maximum"}
    assert everything.table.mean("AttCAT", column) == everything.table.mean("maximum", column) == np.mean(lengths)


def test_figure_3_explains_start_and_end(answering: str, squad: str) -> None:
    first = [Example(example.id, example.text, answer=example.answer[:1]) for example in QUESTIONS]
    for combine in ("sum", "magnitudes"):
        run = wherefrom.evaluate(
            first, answering, methods=["attcat"], metrics=[f"answer-precision(combine={combine})@2"], threads=1
        )
        table = reproduced("attcat/figure3", model=answering, data=squad, k=2, combine=combine).table
        expected = run.mean("attcat", f"answer-precision(combine={combine})@2 count")
        assert table.mean("AttCAT", table.columns[0]) == expected


def test_figure_3_joins_models_datasets_and_the_stand_in(tmp_path: Path) -> None:
    """The folder's name tells which dataset a file belongs to, the model's type which bar it has in the paper."""
    model, data, out = saved(tmp_path / "mine", variant="roberta"), tmp_path / "squad_v1" / "dev.json", tmp_path / "out"
    question, context = QUESTIONS[1].text
    answers = [{"text": "cats", "answer_start": 4}]
    paragraph = {"context": context, "qas": [{"id": "1", "question": question, "answers": answers}]}
    data.parent.mkdir()
    data.write_text(json.dumps({"data": [{"title": "", "paragraphs": [paragraph] * 2}]}), encoding="utf-8")
    reproduced("attcat/figure3", model=f"squad_v1={model}", data=str(data), out=out)
    result = reproduced("attcat/figure3", limit=2, out=out)
    assert set(result.table.columns) == {"grammar cues (stand-in)", "SQuADv1 RoBERTa"}
    assert any("stand-in" in note for note in result.table.notes)
    assert {"AttCAT", "maximum"} <= {text.get_text() for text in result.plot().findobj(Text)}
    assert [verdict.holds for verdict in result.verdicts if "stand-in" in verdict.says] == [None]


def test_figure_3_refuses_a_model_that_does_not_answer(squad: str, answering: str) -> None:
    with pytest.raises(UnsupportedModel, match="does not answer"):
        wherefrom.reproduce("attcat/figure3", model="wherefrom/sentiment", data=squad)
    with pytest.raises(UnsupportedModel, match="--data"):
        wherefrom.reproduce("attcat/figure3", model=answering, data="grammar")


def test_precision_for_several_values_of_k(answering: str, squad: str) -> None:
    table = reproduced("attcat/appendix-k", model=answering, data=squad).table
    counts = [table.mean("AttCAT", column) for column in table.columns]
    assert counts == sorted(counts)
    single = reproduced("attcat/figure3", model=answering, data=squad, k=5).table
    assert single.mean("CAT", single.columns[0]) == table.mean("CAT", "K = 5")


# Figures 4 and 5 ------------------------------------------------------------------------------------------


def test_figure_4_as_the_notebook_computes_it() -> None:
    """All layers, the product of a token's scores and their sum, divided by the norm of all of these."""
    text = "a good film"
    total = wherefrom.explain(text, "wherefrom/sentiment", method="attcat")
    assert total.layer_scores is not None
    rollout = np.ones(len(total))
    for layer in total.layer_scores:
        rollout = rollout * layer
    rows = np.vstack([total.layer_scores, rollout, total.scores])
    result = reproduced("attcat/figure4", texts=text)
    assert list(result.table.columns) == [*(f"L{i}" for i in range(len(total.layer_scores))), "Rollout", "Sum"]
    assert np.abs(result.table.matrix().T - rows / np.sqrt((rows**2).sum())).max() < 1e-6
    (image,) = result.plot().axes[0].images
    assert np.asarray(image.get_array()).shape[:2] == rows.shape  # layers by tokens


def test_figure_4_of_several_texts_and_with_maps() -> None:
    result = reproduced("attcat/figure4", texts=["a good film", "a bad bad film"], rollout="maps")
    assert set(result.table.pictures) == {"-1", "-2"}
    assert "2. bad (2)" in result.table.rows
    maps = wherefrom.explain("a good film", "wherefrom/sentiment", method="attcat", join="rollout").scores
    ours = np.array([result.table.mean(row, "Rollout") for row in result.table.rows if row.startswith("1. ")])
    assert np.corrcoef(maps, ours)[0, 1] == pytest.approx(1)


def test_figure_5a_explains_start_and_end_together(answering: str, tmp_path: Path) -> None:
    pair = ("is the film good ?", "the film is very good .")
    table = reproduced("attcat/figure5a", model=f"squad_v1={answering}", texts=[pair]).table
    start, end = (wherefrom.explain(pair, answering, method="attcat", target=edge).scores for edge in ("start", "end"))
    assert table.matrix()[:, 0] == pytest.approx(start + end, abs=1e-5)
    passage = reproduced("attcat/figure5a", model=answering, out=tmp_path)
    assert not passage.table.notes
    stand_in = reproduced("attcat/figure5a").table
    assert any("stand-in" in note for note in stand_in.notes)
    with pytest.raises(UnsupportedModel):
        reproduced("attcat/figure5a", model="wherefrom/sentiment")


def test_figure_5b_of_ones_own_text() -> None:
    result = reproduced("attcat/figure5b", texts="a boring film", at="output")
    assert list(result.table.columns) == ["AttCAT", "TransAtt", "RawAtt", "Rollout"]
    scores = wherefrom.explain("a boring film", "wherefrom/sentiment", method="attcat", at="output").scores
    assert result.table.matrix(columns=["AttCAT"])[:, 0] == pytest.approx(scores, abs=1e-6)


# Tables ---------------------------------------------------------------------------------------------------


def test_tables_1_and_2_take_a_model_for_each_dataset(tmp_path: Path) -> None:
    labels = {"sst2": ("negative", "positive"), "mnli": ("entailment", "neutral", "contradiction")}
    models, data = [], []
    for name, classes in labels.items():
        named: dict[str, Any] = {
            "num_labels": len(classes),
            "id2label": dict(enumerate(classes)),
            "label2id": {label: i for i, label in enumerate(classes)},
        }
        models.append(f"{name}={saved(tmp_path / name / 'model', 'classification', **named)}")
        data.append(tmp_path / name / ("validation.tsv" if name == "sst2" else "validation_matched.tsv"))
    data[0].write_text("sentence\tlabel\nthe film is good\t1\nthe film is not good\t0\n", encoding="utf-8")
    data[1].write_text("premise\thypothesis\tlabel\nthe cat is good\tthe cat is bad\t2\n", encoding="utf-8")
    arguments: dict[str, Any] = {"model": ",".join(models), "data": ",".join(map(str, data))}
    table = reproduced("attcat/table2", **arguments).table
    assert list(table.columns) == ["SST2", "SST2 by scores", "MNLI", "MNLI by scores"]
    model = models[1].partition("=")[2]
    text = ("the cat is good", "the cat is bad")
    for row, method in ROWS.items():
        if row in ("RawAtt", "Rollout"):
            continue
        explanations = wherefrom.explain(text, model, method=method, target="all")
        assert len(explanations) == 3
        predicted = next(iter(explanations.values())).prediction
        order = {label: np.argsort(-explanation.scores, kind="stable") for label, explanation in explanations.items()}
        taus = [
            np.mean([np.sign((a[i] - a[j]) * (b[i] - b[j])) for i in range(len(a)) for j in range(i)])
            for label, b in order.items()
            for a in [order[predicted]]
            if label != predicted
        ]
        assert table.mean(row, "MNLI") == pytest.approx(np.mean(taus), abs=1e-6)
    table = reproduced("attcat/table2", model=arguments["model"], folder=tmp_path, limit=1).table  # no data named
    assert list(table.columns) == ["SST2", "SST2 by scores", "MNLI", "MNLI by scores"]
    table1 = reproduced("attcat/table1", **arguments, at="output").table
    assert list(table1.columns) == ["SST2 AOPC", "SST2 LOdds", "MNLI AOPC", "MNLI LOdds"]


def test_tables_as_the_notebooks_make_them(tmp_path: Path) -> None:
    """Texts of ten tokens or more, towards the gold label and not the predicted one; one other class."""
    (tmp_path / "sst2").mkdir()
    texts = ["the film is not very deep and not good", "a good film", "the dogs of the cats are good and very deep"]
    rows = "".join(f"{text}\t{label}\n" for text in texts for label in (0, 1))
    (tmp_path / "sst2" / "validation.tsv").write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")
    table = reproduced("attcat/table2", data="sst2", folder=tmp_path, protocol="attcat-code", at="output").table
    cell = table.ours["AttCAT", "SST2"]
    assert cell.count == 4
    taus = []
    for text in (texts[0], texts[2]):
        explanations = wherefrom.explain(text, "wherefrom/sentiment", method="attcat", target="all", at="output")
        order = [np.argsort(-explanation.scores) for explanation in explanations.values()]
        pairs = [(i, j) for i in range(len(order[0])) for j in range(i)]
        taus += [np.mean([np.sign((order[0][i] - order[0][j]) * (order[1][i] - order[1][j])) for i, j in pairs])] * 2
    assert cell.mean == pytest.approx(np.mean(taus), abs=1e-6)
    examples = [
        Example(str(i), text, label=label)
        for i, (text, label) in enumerate((text, label) for text in (texts[0], texts[2]) for label in (0, 1))
    ]
    metric, methods = "log-odds(by=pad, protocol=attcat-code)", ["attcat", "raw-attention"]
    by_gold = wherefrom.evaluate(examples, methods=methods, metrics=[metric], target="label", threads=1)
    by_prediction = wherefrom.evaluate(examples, methods=methods, metrics=[metric], threads=1)
    table = reproduced("attcat/table1", data="sst2", folder=tmp_path, protocol="attcat-code").table
    for row, method in (("AttCAT", "attcat"), ("RawAtt", "raw-attention")):
        assert table.mean(row, "SST2 LOdds") == pytest.approx(by_gold.mean(method, metric), abs=1e-5)
        assert by_gold.mean(method, metric) != pytest.approx(by_prediction.mean(method, metric), abs=1e-3)
