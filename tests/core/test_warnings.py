"""A warning shows the line of the caller's that it is about, not one of wherefrom's or torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tiny
import wherefrom
from wherefrom.errors import RowsLeftOut, WherefromWarning

TOKENIZER = tiny.tokenizer()
MODEL: Any = tiny.model()


def files(found: Any) -> set[str]:
    """Where our warnings point; somebody else's may come at any moment."""
    return {each.filename for each in found if issubclass(each.category, WherefromWarning)}


def test_a_methods_warning_shows_the_callers_line() -> None:
    with pytest.warns(WherefromWarning, match="not converged") as found:
        wherefrom.explain("a bad film", MODEL, TOKENIZER, "integrated-gradients", n_steps=1)
    assert files(found) == {__file__}


def test_a_warning_inside_a_pass_shows_the_callers_line() -> None:
    without_values: Any = tiny.model()
    with torch.no_grad():
        for name, weight in without_values.named_parameters():
            weight.mul_(0 if ".value." in name else 1)
    with pytest.warns(WherefromWarning, match="itself alone") as found:
        wherefrom.explain("a bad film", without_values, TOKENIZER, "value-zeroing")
    assert files(found) == {__file__}


def test_warnings_of_streams_and_skipped_inputs_show_the_callers_line() -> None:
    with pytest.warns(WherefromWarning, match="1 input was skipped") as found:
        list(wherefrom.explain_stream(["a film", 1.5], MODEL, TOKENIZER, "attcat", on_error="skip"))
    assert files(found) == {__file__}


def test_the_warning_of_a_missing_method_shows_the_callers_line() -> None:
    with pytest.warns(WherefromWarning, match="missing from the comparison") as found:
        wherefrom.compare("a film", MODEL, TOKENIZER, ["attention", "attcat"], aggregate="rollout")
    assert files(found) == {__file__}


def test_the_warning_of_rows_left_out_shows_the_callers_line() -> None:
    with pytest.warns(RowsLeftOut, match="1 of 2 rows was left out: the text is empty") as found:
        wherefrom.evaluate(["a film", " "], MODEL, TOKENIZER, "attention", "aopc")
    assert files(found) == {__file__}
