"""Several methods in one call: options in their names, and one that fails beside the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
import wherefrom
from wherefrom.errors import InvalidInput, WherefromError, WherefromWarning
from wherefrom.metric.erasure import erasure
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation
from wherefrom.result.explanations import Explanations

TEXT = "the cat sat on a mat"
TOKENIZER = tiny.tokenizer()


def compare(methods: Any, **more: Any) -> Any:
    return wherefrom.compare(TEXT, tiny.model(), TOKENIZER, methods=methods, **more)


@pytest.mark.filterwarnings("ignore:integrated gradients have not converged")
def test_options_stand_in_the_names() -> None:
    model = tiny.model()
    names = [
        "integrated-gradients(n_steps=5)",
        "ablation(of=logit, by=mask)",
        "attention(aggregate=flow, layers=[0,2])",
    ]
    found = compare(names)
    assert list(found) == names
    first = wherefrom.explain(TEXT, model, TOKENIZER, method="integrated-gradients", n_steps=5)
    second = wherefrom.explain(TEXT, model, TOKENIZER, method="ablation(by=mask)", of="logit")
    third = wherefrom.explain(TEXT, model, TOKENIZER, method="attention", aggregate="flow", layers=(0, 2))
    for name, alone in zip(names, (first, second, third), strict=True):
        assert np.allclose(found[name].scores, alone.scores, atol=1e-6)
        assert found[name].options == alone.options
        assert found[name].method == alone.method
    assert wherefrom.estimate(TEXT, model, TOKENIZER, "random(seed=1)").method == "random"


def test_a_wrong_name_or_option_is_an_error_of_the_call() -> None:
    for methods, said in (
        (["attention", "atention"], "did you mean 'attention'"),
        (["attention", "attcat(depth=1)"], "'attcat' has no option 'depth'"),
        (["attention", "attcat(at=middle)"], "'attcat' cannot have at='middle'"),
        ([-0.0, -0.0], "methods holds -0.0; expected names"),
        (5, "methods=5; expected a list of names"),
        (["random(seed=1", "attention"], "cannot read"),
    ):
        with pytest.raises(WherefromError, match=said):
            compare(methods)


@pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")
def test_a_method_that_fails_does_not_take_the_others_with_it(tmp_path: Path, capsys: Any) -> None:
    methods = ["attention", "ablation(by=59999)", "alti"]
    with pytest.warns(
        WherefromWarning, match="ablation.by=59999. is missing from the comparison: .*no token to blank out"
    ):
        found = compare(methods)
    assert list(found) == ["attention", "alti"]
    assert list(found.failed) == ["ablation(by=59999)"]
    assert "no token to blank out" in found.failed["ablation(by=59999)"]
    again = Comparison.load(found.save(tmp_path / "found.json"))
    assert again.failed == found.failed == found.words().failed
    found.show()
    assert "no token to blank out" in capsys.readouterr().out
    assert found.to_html().count("no token to blank out") == 2  # for the viewer, and where no script runs
    assert "no token to blank out" in found._repr_html_()
    assert "failed" not in compare(["attention"]).to_dict()


@pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")
def test_what_a_method_cannot_take_is_its_own_failure() -> None:
    found = compare(["alti", "attcat"], layers=(0, 2))
    assert list(found) == ["alti"]
    assert "no layer maps" in found.failed["attcat"]
    found = compare(["alti", "attcat"], position=2)
    assert "follows the logit" in found.failed["attcat"]


def test_where_all_fail_the_first_error_is_raised() -> None:
    with pytest.raises(WherefromError, match="no token to blank out"):
        compare(["ablation(by=59999)", "ablation-pairs(by=59999)"])


@pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")
def test_of_several_inputs_only_those_that_fail_lack_the_method() -> None:
    """A baseline of so many tokens fits one of the sentences, which share a batch."""
    ids = TOKENIZER(TEXT)["input_ids"]
    name = f"integrated-gradients(n_steps=5, baseline={ids})"
    found = wherefrom.compare([TEXT, "a cat"], tiny.model(), TOKENIZER, methods=[name, "alti"])
    assert [list(each) for each in found] == [[name, "alti"], ["alti"]]
    assert [list(each.failed) for each in found] == [[], [name]]


def test_beside_every_class_what_looks_at_none_is_measured_by_the_prediction() -> None:
    model = tiny.model(seed=2)  # which predicts another class than 0
    plain, every = (
        wherefrom.compare(TEXT, model, TOKENIZER, methods=["attcat", "alti"], target=each) for each in (None, "all")
    )
    assert plain["alti"].prediction != "LABEL_0"
    assert {name: each.measured.label for name, each in every.items()} == {
        **{f"attcat: LABEL_{i}": f"LABEL_{i}" for i in range(3)},
        "alti": plain["alti"].prediction,
    }
    once, again = (erasure(TEXT, each["alti"], model, TOKENIZER).aopc for each in (plain, every))
    assert once == pytest.approx(again, abs=1e-12)


def two_models() -> Comparison:
    """One method on one text by two models."""
    fields: dict[str, Any] = {"texts": ("good",), "spans": [(0, 0, 4)], "signed": True}
    one = Explanation.from_scores(["good"], [1.0], "cp-lrp", model="first", prediction="yes", **fields)
    return Comparison({"before": one, "after": replace(one, model="second", prediction="no")})


def test_names_of_ones_own_are_shown_with_the_heading_of_each_model(capsys: Any) -> None:
    both = two_models()
    both.show()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [line.split()[:2] for line in lines if line.startswith("predicts")] == [
        ["predicts", "yes"],
        ["predicts", "no"],
    ]
    assert [line.split(" ")[0] for line in lines if "cp-lrp" in line] == ["before", "after"]
    static = both.to_html().partition("predicts yes")[2]
    assert static.index("before · cp-lrp") < static.index("predicts no") < static.index("after · cp-lrp")


def test_one_input_has_one_heading(capsys: Any) -> None:
    found = compare(["attention", "alti(layers=[0,2])", "Rand"])
    elsewhere = Explanation.from_scores(["a", "cat"], [1.0, 2.0])
    Comparison({**found, "captum": elsewhere}).show()
    lines = capsys.readouterr().out.splitlines()
    assert sum("read at:" in line for line in lines) == 1
    for start in ("attention · rollout", "alti · rollout · layers", "Rand · random", "captum · given"):
        assert sum(line.startswith(start) for line in lines) == 1, start


def test_rows_of_a_table_say_which_explanation_they_are_of(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    both = two_models()
    assert both.to_dataframe().groupby("name").score.sum().to_dict() == {"before": 1.0, "after": 1.0}
    assert "name" not in both["before"].to_dataframe().columns
    several = Explanations([both, both])
    assert several.to_dataframe()[["input", "name"]].values.tolist() == [
        [row, name] for row in (0, 1) for name in ("before", "after")
    ]
    assert pandas.read_csv(both.save(tmp_path / "both.csv")).name.tolist() == ["before", "after"]
    lines = several.save(tmp_path / "several.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["name"] for line in lines] == 2 * ["before", "after"]
    assert all(f"{row}: {name} · cp-lrp" in several.to_html() for row in (0, 1) for name in both)


@pytest.mark.parametrize("given", [[1, 2], {"a": None}, {"a": 3}])
def test_a_comparison_is_of_explanations_by_name(given: Any) -> None:
    with pytest.raises(InvalidInput, match="a comparison is of explanations by name"):
        wherefrom.Comparison(given)


def test_a_name_that_is_not_there_is_told_which_are() -> None:
    found = Comparison(dict(two_models()), failed={"alti": "no blocks"})
    with pytest.raises(KeyError, match="no 'zz' among these; there are before, after"):
        found["zz"]
    with pytest.raises(KeyError, match=r"no 'alti' among these \(it failed: no blocks\)"):
        found["alti"]
    assert found.get("zz") is None
    assert "zz" not in found
