"""A warning shows the line of the caller's that it is about, not one of whence's or torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tiny
import whence
from whence.errors import WhenceWarning

TOKENIZER = tiny.tokenizer()
MODEL: Any = tiny.model()


def test_of_a_method() -> None:
    with pytest.warns(WhenceWarning, match="not converged") as found:
        whence.explain("a bad film", MODEL, TOKENIZER, "integrated-gradients", n_steps=1)
    assert {each.filename for each in found} == {__file__}


def test_from_inside_of_the_models_pass() -> None:
    without_values: Any = tiny.model()
    with torch.no_grad():
        for name, weight in without_values.named_parameters():
            weight.mul_(0 if ".value." in name else 1)
    with pytest.warns(WhenceWarning, match="itself alone") as found:
        whence.explain("a bad film", without_values, TOKENIZER, "value-zeroing")
    assert {each.filename for each in found} == {__file__}


def test_of_a_stream_and_of_inputs_left_out() -> None:
    with pytest.warns(WhenceWarning, match="1 of 2 inputs were skipped") as found:
        list(whence.explain_stream(["a film", 1.5], MODEL, TOKENIZER, "attcat", on_error="skip"))
    assert {each.filename for each in found} == {__file__}


def test_of_a_method_that_is_missing() -> None:
    with pytest.warns(WhenceWarning, match="missing from the comparison") as found:
        whence.compare("a film", MODEL, TOKENIZER, ["attention", "attcat"], aggregate="rollout")
    assert {each.filename for each in found} == {__file__}
