"""Which models' own attention a kernel may stand in for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

import tiny
import wherefrom
from wherefrom.model.at_once import at_once, is_plain


def eager(name: str) -> Any:
    return import_module(f"transformers.models.{name}.modeling_{name}").eager_attention_forward


KINDS = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "phi3", "olmo2", "mixtral"])
def test_the_attention_of_llama_is_that_of_many(name: str) -> None:
    assert all(is_plain(eager(name), kind) for kind in KINDS)


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "distilbert", "bart", "dinov2"])
def test_the_attention_of_bert_is_the_same_in_float32(name: str) -> None:
    assert [is_plain(eager(name), kind) for kind in KINDS] == [True, False]


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "gpt2", "gpt_neox", "opt", "t5"])
def test_attention_that_does_more_is_the_models_own(name: str) -> None:
    assert not any(is_plain(eager(name), kind) for kind in KINDS)


def test_a_cpu_asks_the_model() -> None:
    q = torch.zeros(1, 2, 3, 16, dtype=torch.bfloat16)
    with torch.no_grad():
        assert at_once(eager("llama"), q, q, q, None, True, scaling=1.0) is None


def test_a_plain_function_is_known_as_such_while_a_capture_has_it_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, capturing = list[bool](), import_module("wherefrom.model.capture")

    def note(eager: Any, *_args: Any, **_more: Any) -> None:
        plain.append(is_plain(eager, torch.bfloat16))

    is_plain.cache_clear()
    monkeypatch.setattr(capturing, "worth", lambda _choice: True)
    monkeypatch.setattr(capturing, "at_once", note)
    wherefrom.capture(tiny.ids(5), tiny.model("llama", "causal-lm"))
    assert plain
    assert all(plain)
