"""The proof on opening, and when it stands for the next model too: not where others decide what a block computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch.nn.modules.module import register_module_forward_hook

import tiny
import wherefrom
from wherefrom.errors import InvalidOption, UnsupportedModel
from wherefrom.model import open_model, proof
from wherefrom.model.families import FAMILIES
from wherefrom.model.stock import stock


def llama(**changes: Any) -> Any:
    return tiny.model("llama", "encoder", **changes)


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A name for each model that is proved, none of them known before."""
    found: list[str] = []

    def counted(opened: Any) -> Any:
        found.append(opened.family.name)
        return own(opened)

    own = proof.prove
    monkeypatch.setattr(proof, "prove", counted)
    monkeypatch.setattr(proof, "_BY_CLASS", {})
    return found


def test_models_that_are_alike_share_a_proof(proofs: list[str]) -> None:
    for seed in range(3):
        wherefrom.explain(tiny.ids(4), llama(seed=seed), method="alti")
    assert proofs == ["llama"]
    open_model(llama(rms_norm_eps=1e-3))
    open_model(llama(dtype=torch.float64))
    open_model(tiny.model("llama", "causal-lm"))
    assert len(proofs) == 4


def test_a_shape_without_a_row_is_proved_for_its_weights(proofs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FAMILIES, "olmo3")
    model = tiny.shared("olmo3")
    for _ in range(2):
        open_model(model)
    first = len(proofs)
    open_model(tiny.shared("olmo3"))
    assert len(proofs) == 2 * first
    with torch.no_grad():
        model.layers[0].mlp.up_proj.weight.add_(0.1)
    open_model(model)
    assert len(proofs) == 3 * first


# Ways to change what a block computes ---------------------------------------------------------------------------


def hooked(model: Any) -> None:
    model.layers[1].mlp.register_forward_hook(lambda _module, _args, output: 1.1 * output)


def hooked_before(model: Any) -> None:
    model.layers[1].mlp.register_forward_pre_hook(lambda _module, args: (1.1 * args[0],))


def patched(model: Any) -> None:
    own = model.layers[1].mlp.forward
    model.layers[1].mlp.forward = lambda h: 1.1 * own(h)


def replaced(model: Any) -> None:
    model.layers[1].mlp = _louder(model.layers[1].mlp)


def derived(model: Any) -> None:
    model.layers[1].__class__ = type(_louder(model.layers[1]))


def _louder(part: Any) -> Any:
    """The same with a class of somebody's."""

    class Louder(type(part)):  # type: ignore[misc]
        def forward(self, *args: Any, **more: Any) -> Any:
            return 1.1 * super().forward(*args, **more)

    found = Louder.__new__(Louder)
    found.__dict__.update(part.__dict__)
    return found


@pytest.mark.parametrize("change", [hooked, hooked_before, patched, replaced, derived])
def test_a_change_is_seen_after_the_proof_of_its_like(change: Callable[[Any], None]) -> None:
    open_model(llama())
    model = llama()
    change(model)
    assert not stock(model)
    with pytest.raises(UnsupportedModel, match=r"block 1 rebuilt .*: off by"):
        open_model(model)
    open_model(llama())


def test_a_change_of_the_class_or_of_all_modules_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    open_model(model)
    handle = register_module_forward_hook(
        lambda module, _args, output: 2 * output if module is model.layers[1].mlp else None
    )
    try:
        with pytest.raises(UnsupportedModel, match="FFN: off by"):
            open_model(model)
    finally:
        handle.remove()
    cls, own = type(model.layers[1].mlp), type(model.layers[1].mlp).forward
    monkeypatch.setattr(cls, "forward", lambda self, h: 1.1 * own(self, h))
    with pytest.raises(UnsupportedModel, match="FFN: off by"):
        open_model(model)


def test_hooks_that_change_nothing_are_no_hindrance(proofs: list[str]) -> None:
    model = llama()
    model.layers[0].register_forward_hook(lambda *_: None)
    for _ in range(2):
        open_model(model)
    assert proofs == ["llama", "llama"]  # what a hook does may change


def test_hooks_of_transformers_are_its_own() -> None:
    model = llama()
    model(torch.tensor([tiny.ids(4)]), output_hidden_states=True)
    assert any(part._forward_hooks for part in model.modules())
    assert stock(model)


def test_a_setting_of_a_module_is_seen(proofs: list[str]) -> None:
    model = tiny.model("granite", "encoder")
    open_model(model)
    model.layers[1].residual_multiplier = 0.25
    assert open_model(model).blocks[1].multiplier == 0.25
    assert len(proofs) == 2


# Without -----------------------------------------------------------------------------------------------------


def test_a_model_is_opened_without_a_proof(proofs: list[str]) -> None:
    model = llama()
    patched(model)
    found = wherefrom.explain(tiny.ids(4), model, method="alti", prove=False)
    assert found.scores.shape == (4,)
    assert proofs == []
    with pytest.raises(UnsupportedModel, match="off by"):
        wherefrom.explain(tiny.ids(4), model, method="alti")


def test_what_a_method_needs_to_know_is_seen_when_it_is_asked_for(proofs: list[str]) -> None:
    opened = open_model(tiny.model("bert", "encoder"), prove=False)
    assert proofs == []
    assert not opened.traits.bent_keys
    assert proofs == ["bert"]


def test_to_choose_among_rows_takes_a_proof(proofs: list[str]) -> None:
    assert not open_model(tiny.model("gpt_neox-sequential", "encoder"), prove=False).family.parallel
    assert open_model(tiny.shared("olmo3"), prove=False).family.mapped
    assert not open_model(tiny.shared("bitnet"), prove=False).family.mapped
    assert proofs


def test_an_open_model_has_been_proved_or_not() -> None:
    with pytest.raises(InvalidOption, match="prove cannot be given with a model that is open already"):
        open_model(open_model(llama()), prove=False)


def test_a_model_that_fails_by_itself_is_told_so() -> None:
    """A head for answers has two outputs; this one's own forward pass cannot unpack its three."""
    model = tiny.model("bert", "question-answering", num_labels=3)
    with pytest.raises(wherefrom.WherefromError, match=r"own forward pass fails.*too many values to unpack"):
        wherefrom.explain([5, 6, 7], model)


def test_a_hook_that_fails_is_named_before_the_configuration() -> None:
    model = tiny.model("bert", "classification")
    held = model.bert.encoder.layer[0].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(
        wherefrom.WherefromError, match=r"division by zero\). Check the hooks that are registered on it"
    ):
        wherefrom.explain([5, 6, 7], model)
    held.remove()
    assert wherefrom.explain([5, 6, 7], model).prediction


def test_two_heads_at_once_are_refused_with_a_way_out() -> None:
    """`BertForPreTraining` has two kinds of logits and no `.logits`."""
    config = tiny.model("bert", "classification").config
    with pytest.raises(wherefrom.WherefromError, match="Load its checkpoint with the class of one task"):
        wherefrom.explain([5, 6, 7], transformers.BertForPreTraining(config).eval())


def test_the_kind_of_attention_is_seen(proofs: list[str]) -> None:
    """Falcon with ALiBi computes another thing by sdpa than by its eager attention, which is what is followed."""
    sdpa, eager = (falcon(attention) for attention in ("sdpa", "eager"))
    for _ in range(2):
        with pytest.raises(UnsupportedModel, match="load it with attn_implementation='eager'"):
            open_model(sdpa)
        open_model(eager)  # as it was advised
    assert sorted(proofs) == ["falcon"] * len(proofs)


def falcon(attention: str) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("falcon", **tiny.SHAPE, alibi=True, initializer_range=0.5)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def test_an_attention_that_somebody_registered_is_proved_each_time(
    proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def own(*args: Any, **kwargs: Any) -> Any:
        out, weights = sdpa(*args, **kwargs)
        return out * factor, weights

    factor, sdpa = 1.0, transformers.AttentionInterface._global_mapping["sdpa"]
    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "own", own)
    model = llama()
    model.config._attn_implementation_internal = "own"
    open_model(model)
    factor = 2.0
    with pytest.raises(UnsupportedModel):
        open_model(model)
    assert proofs == ["llama", "llama"]
