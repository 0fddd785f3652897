"""Several methods in one call: options in their names, and one that fails beside the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
import wherefrom
from wherefrom.errors import WherefromError, WherefromWarning
from wherefrom.metric.erasure import erasure
from wherefrom.result.comparison import Comparison

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
