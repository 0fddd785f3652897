"""A model that somebody else runs at the same time, in another thread: neither sees the other."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from wherefrom.model import double_twin, undo

TEXT, IDS = "the deep film is good", torch.tensor([[2, 9, 8, 7, 6, 5, 3]])
METHODS = (
    "integrated-gradients",
    "deeplift",
    "ablation",
    "attcat",
    "cp-lrp",
    "value-zeroing",
    "decompx",
    "hta",
    "alti",
)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_a_pass_of_another_thread_is_left_alone(variant: str, method: str) -> None:
    """In the middle of every pass of ours, and of every part of one, another thread has one of its own."""
    model, tokenizer = tiny.model(variant), tiny.tokenizer()
    with torch.no_grad():
        right = model(IDS).logits
    alone = wherefrom.explain(TEXT, model, tokenizer, method=method)
    ours, found = threading.get_ident(), list[Any]()

    def others() -> None:
        try:
            with torch.no_grad():
                found.append(model(IDS).logits)
        except Exception as error:
            found.append(error)

    def meanwhile(*_: Any) -> None:
        if threading.get_ident() == ours and len(found) < 12:
            thread = threading.Thread(target=others)
            thread.start()
            thread.join()

    model.get_input_embeddings().register_forward_hook(meanwhile)
    model.base_model.get_submodule("encoder.layer.1" if variant == "bert" else "h.1").register_forward_hook(meanwhile)
    again = wherefrom.explain(TEXT, model, tokenizer, method=method)
    assert found
    assert all(isinstance(each, torch.Tensor) and torch.allclose(each, right, atol=1e-5) for each in found), found
    assert np.allclose(again.scores, alone.scores, atol=1e-5)


@pytest.mark.parametrize("variant", ["llama", "gpt2"])
def test_a_pass_that_began_before_ours_keeps_its_attention(variant: str) -> None:
    """Under sdpa a causal model has no mask: eager attention in its middle would see what comes later."""
    model, tokenizer = tiny.model(variant, "causal-lm"), tiny.tokenizer()
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        right = model(IDS).logits
    begun, inside, done, found = threading.Event(), threading.Event(), threading.Event(), list[Any]()
    ours = threading.get_ident()

    def others() -> None:
        with torch.no_grad():
            found.append(model(IDS).logits)
        done.set()

    def meet(*_: Any) -> None:
        if threading.get_ident() == ours:
            inside.set()
            done.wait(60)
        else:
            begun.set()
            inside.wait(60)

    opened = wherefrom.open_model(model, tokenizer)
    wherefrom.explain(TEXT, opened, method="alti")  # whatever is made once
    model.base_model.get_submodule("layers.0" if variant == "llama" else "h.0").register_forward_pre_hook(meet)
    thread = threading.Thread(target=others)
    thread.start()
    assert begun.wait(60)
    wherefrom.explain(TEXT, opened, method="alti")
    thread.join()
    assert torch.allclose(found[0], right, atol=1e-4)


def test_a_model_is_copied_while_nobody_has_hooks_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made, twin = [], double_twin._twin

    def watched(*args: Any) -> Any:
        made.append(undo._LOCK._is_owned())  # type: ignore[attr-defined]
        return twin(*args)

    monkeypatch.setattr(double_twin, "_twin", watched)
    wherefrom.explain(TEXT, tiny.model(), tiny.tokenizer(), method="full-lrp")
    assert made == [True]
