"""Models in a wrapping give what the plain model gives, and come back as they were; or a sentence says why not."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tiny
import wherefrom
from wherefrom.errors import Unsuited, WherefromError
from wherefrom.testing import refuse_changes, state

IDS = tiny.ids(6)
TEXT = "the cat was not very good"
# One of each kind: layer maps, their weights in closed form, gradients, reruns, differences, float64 relevance.
METHODS = (
    "alti",
    "globenc",
    "value-zeroing",
    "attcat",
    "integrated-gradients",
    "ablation",
    "deeplift",
    "full-lrp",
    "decompx",
)
PROJECTIONS = {
    "bert": ["query", "value", "intermediate.dense", "output.dense"],
    "gpt2": ["c_attn", "c_fc", "c_proj"],
    "llama": ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"],
    "gpt_neox": ["query_key_value", "dense", "dense_4h_to_h"],
}


def scores(model: Any, method: str, **options: Any) -> Any:
    """The scores; None where the method is not for this architecture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # integrated gradients of random weights may not converge
        return _scores(model, method, **options)


def _scores(model: Any, method: str, **options: Any) -> Any:
    try:
        return wherefrom.explain(TEXT, model, tiny.tokenizer(), method=method, **options).scores
    except Unsuited:
        return None


def same(model: Any, plain: nn.Module, methods: Any = METHODS, near: float = 1e-7) -> None:
    """Both models give the same, and the first is not changed by being asked."""
    before = state(model)
    for method in methods:
        ours, theirs = scores(model, method), scores(plain, method)
        if theirs is None:
            assert ours is None, method
        else:
            np.testing.assert_allclose(ours, theirs, atol=near * np.abs(theirs).max(), rtol=0, err_msg=method)
    refuse_changes(before, state(model), "wrapped")


def lora(variant: str = "bert", task: str = "classification", kind: str = "SEQ_CLS", **more: Any) -> Any:
    """A tiny model under a LoRA adapter of which no matrix is 0."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    options = {"r": 2, "target_modules": PROJECTIONS[variant], "lora_dropout": 0.5, "init_lora_weights": False, **more}
    size = {} if variant == "gpt2" else {"num_hidden_layers": 2}
    inner = tiny.model(variant, task, dtype=torch.float64, **size)
    torch.manual_seed(3)
    return peft.get_peft_model(inner, peft.LoraConfig(task_type=kind, **options))


def merged(model: Any) -> Any:
    return copy.deepcopy(model).merge_and_unload().eval()


# Adapters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", PROJECTIONS)
def test_lora_gives_what_its_merged_model_gives(variant: str) -> None:
    model = lora(variant)
    same(model.train(), merged(model))
    assert wherefrom.open_model(model).name.endswith(" + default"), "the record says that there is an adapter"


@pytest.mark.parametrize("more", [{"use_dora": True}, {"use_rslora": True}, {"modules_to_save": ["classifier"]}])
def test_other_kinds_of_lora(more: dict[str, Any]) -> None:
    model = lora(target_modules=["query", "value", "output.dense"], **more)
    same(model, merged(model), ("alti", "attcat", "full-lrp"))


@pytest.mark.parametrize(
    "more",
    [
        {"target_modules": ["query", "word_embeddings"]},
        {"modules_to_save": ["word_embeddings"]},
        {"trainable_token_indices": {"word_embeddings": [5, 6, 7]}},
    ],
)
def test_adapters_of_the_table_of_tokens(more: dict[str, Any]) -> None:
    model = lora(**more)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embedding" in name and weight.requires_grad:
                weight += 0.1 * torch.randn(weight.shape, dtype=weight.dtype)
    plain = tiny.model(num_hidden_layers=2, dtype=torch.float64)
    assert not np.allclose(scores(model, "gradient-x-input"), scores(plain, "gradient-x-input"), atol=1e-4)
    same(model, merged(model), ("alti", "attcat", "full-lrp", "ablation"))


def test_adapters_one_within_the_other_are_refused_with_a_way_out() -> None:
    model = lora(modules_to_save=["embeddings"])  # of which each table, too, is a module whose name ends so
    with pytest.raises(WherefromError, match=r"another table than .* merge them, with peft's merge_and_unload"):
        wherefrom.open_model(model)
    assert wherefrom.open_model(merged(model)).family.name == "bert"


def test_adapters_that_are_merged_disabled_or_several() -> None:
    model = lora(task="encoder", kind="FEATURE_EXTRACTION")
    plain, bare = merged(model), tiny.model("bert", "encoder", num_hidden_layers=2, dtype=torch.float64)
    with model.disable_adapter():
        same(model, bare, ("alti", "value-zeroing"))
    model.add_adapter("other", model.peft_config["default"])
    same(model, plain, ("alti",))
    model.set_adapter("other")
    assert not np.allclose(scores(model, "alti"), scores(plain, "alti"), atol=1e-4)
    same(model, merged(model), ("alti",))
    model.base_model.set_adapter(["default", "other"])
    same(model, merged(model), ("alti", "value-zeroing"))
    model.merge_adapter()
    same(model, merged(model), ("alti", "value-zeroing"))


def test_adapters_put_into_a_model_by_transformers() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model = tiny.model(num_hidden_layers=2, dtype=torch.float64)
    plain = scores(model, "alti")
    torch.manual_seed(3)
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False))
    with_it = lora(target_modules=["query", "value"])
    found = scores(model, "alti")
    assert not np.allclose(found, plain, atol=1e-4), "the proof of the plain model does not stand for this one"
    np.testing.assert_allclose(found, scores(merged(with_it), "alti"), atol=1e-6)


def test_an_adapter_that_scales_is_asked_what_it_does() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.IA3Config(
        task_type="SEQ_CLS",
        target_modules=["key", "value", "output.dense"],
        feedforward_modules=["output.dense"],
        init_ia3_weights=False,
    )
    model = peft.get_peft_model(tiny.model(num_hidden_layers=2, dtype=torch.float64), config)
    same(model, merged(model), ("alti", "value-zeroing"))


def test_a_folder_with_an_adapter_alone_says_how_to_load_it(tmp_path: Any) -> None:
    lora().save_pretrained(tmp_path)
    with pytest.raises(WherefromError, match=r"holds an adapter and no model; load .* by peft.PeftModel"):
        wherefrom.open_model(tmp_path)


def test_a_prompt_in_front_of_the_text_is_refused() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)
    with pytest.raises(WherefromError, match=r"'default' .* puts vectors of its own in front of the text"):
        wherefrom.open_model(peft.get_peft_model(tiny.model(), config))


# torch's own wrappings ------------------------------------------------------------------------------------


def compiled(model: nn.Module) -> Any:
    return torch.compile(model)


def compiled_in_place(model: nn.Module) -> Any:
    model.compile()
    return model


def compiled_by_block(model: Any) -> Any:
    for i, layer in enumerate(model.bert.encoder.layer):
        model.bert.encoder.layer[i] = torch.compile(layer)
    return model


def compiled_forward(model: nn.Module) -> Any:
    model.forward = torch.compile(model.forward)
    return model


def in_parallel(model: nn.Module) -> Any:
    return nn.DataParallel(model)


def checkpointing(model: Any) -> Any:
    model.gradient_checkpointing_enable()
    return model.train()


def watched(model: Any) -> Any:
    model.seen = []
    model.bert.encoder.layer[0].register_forward_hook(lambda *_: model.seen.append(1))
    return model


@pytest.mark.parametrize(
    "wrap",
    [compiled, compiled_in_place, compiled_by_block, compiled_forward, in_parallel, checkpointing, watched],
)
def test_torchs_own_wrappings(wrap: Callable[[nn.Module], Any]) -> None:
    plain = tiny.model(num_hidden_layers=2, dtype=torch.float64)
    same(wrap(copy.deepcopy(plain)), plain, ("alti", "attcat", "ablation"))


def test_a_hook_that_changes_numbers_is_found_on_opening() -> None:
    model = tiny.model(num_hidden_layers=2, dtype=torch.float64)
    wherefrom.open_model(model)
    model.bert.encoder.layer[1].output.dense.register_forward_hook(lambda _m, _a, output: 2 * output)
    with pytest.raises(WherefromError, match=r"block 1 rebuilt from its parts .* FFN"):
        wherefrom.open_model(model)


def test_a_scripted_module_is_refused() -> None:
    model = tiny.model(num_hidden_layers=1, return_dict=False)
    traced = torch.jit.trace(model, torch.tensor([IDS]), check_trace=False, strict=False)
    with pytest.raises(WherefromError, match=r"a scripted or traced module"):
        wherefrom.open_model(traced)


# Quantised ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_rounds_its_input_is_refused_with_what_to_do() -> None:
    rounded = torch.ao.quantization.quantize_dynamic(tiny.model(num_hidden_layers=2), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(WherefromError, match=r"it rounds what it is given .* dequantise the model"):
        wherefrom.explain(IDS, rounded, method="alti")


@pytest.mark.parametrize("packed", ["int8", "int4"])
def test_quantised_weights_are_asked_what_they_do(packed: str) -> None:
    """As bitsandbytes and GPTQ have it: a module whose `weight` is no matrix of floats, and which multiplies by one."""
    plain = tiny.model(num_hidden_layers=2, dtype=torch.float64)
    model = copy.deepcopy(plain)
    for layer, kept in zip(model.bert.encoder.layer, plain.bert.encoder.layer, strict=True):
        for name in ("attention.self.value", "attention.output.dense", "output.dense"):
            layer.set_submodule(name, Packed(kept.get_submodule(name), packed))
            kept.get_submodule(name).weight.data = layer.get_submodule(name).matrix()
    same(model, plain, ("alti", "value-zeroing", "attcat", "ablation"))


class Packed(nn.Module):
    """A linear module with weights of a few bits."""

    def __init__(self, plain: nn.Linear, kind: str) -> None:
        super().__init__()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.scale = float(plain.weight.detach().abs().max()) / {"int8": 127, "int4": 7}[kind]
        whole = (plain.weight.detach() / self.scale).round().to(torch.int8)
        self.weight = nn.Parameter(whole if kind == "int8" else whole.reshape(-1, 1), requires_grad=False)
        self.bias = plain.bias

    def matrix(self) -> torch.Tensor:
        return self.weight.reshape(self.out_features, self.in_features).double() * self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.matrix(), self.bias)


# Weights elsewhere ----------------------------------------------------------------------------------------


def places(model: nn.Module) -> list[Any]:
    return [(name, weight.device, weight.requires_grad) for name, weight in model.named_parameters()]


@pytest.mark.parametrize(
    ("variant", "where"), [("bert", "cpu"), ("bert", "disk"), ("llama", "blocks on disk"), ("gpt_neox", "cpu")]
)
def test_offloaded_weights_are_read_while_they_are_there(variant: str, where: str, tmp_path: Any) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    plain = tiny.model(variant, num_hidden_layers=2, dtype=torch.float64)
    model = copy.deepcopy(plain)
    if where == "cpu":
        accelerate.cpu_offload(model, execution_device="cpu")
    elif where == "disk":
        accelerate.disk_offload(model, tmp_path, execution_device="cpu")
    else:
        accelerate.dispatch_model(
            model, blocks_elsewhere(model, "disk"), main_device="cpu", offload_dir=tmp_path, force_hooks=True
        )
    before = places(model)
    assert any(device.type == "meta" for _, device, _ in before)
    for method in ("alti", "value-zeroing", "attcat", "integrated-gradients", "attn-lrp"):
        np.testing.assert_allclose(scores(model, method), scores(plain, method), atol=1e-9, err_msg=method)
    assert places(model) == before
    if variant == "bert":
        with pytest.raises(Unsuited, match="some of BertForSequenceClassification are offloaded"):
            wherefrom.explain(TEXT, model, tiny.tokenizer(), method="full-lrp")


def blocks_elsewhere(model: Any, place: str | int, first: int = 0, head: str | int = "cpu") -> dict[str, str | int]:
    """A device map: the blocks from the first on in one place, what comes after them in another, the rest here."""
    blocks = wherefrom.open_model(model).blocks
    names = {id(module): name for name, module in model.named_modules()}
    inside = {names[id(block.module)]: place if i >= first else "cpu" for i, block in enumerate(blocks)}
    rest = [name for name, _ in model.named_parameters() if not any(name.startswith(f"{each}.") for each in inside)]
    order = [name for name, _ in model.named_parameters()]
    begins = next(i for i, name in enumerate(order) if any(name.startswith(f"{each}.") for each in inside))
    return {**inside, **{name.rpartition(".")[0]: head if order.index(name) > begins else "cpu" for name in rest}}


SPLIT = ("bert", "gpt2", "llama", "gpt_neox", "gemma2", "mixtral", "olmo")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("head", ["cpu", 0], ids=["head with the embeddings", "head with the last blocks"])
@pytest.mark.parametrize("variant", SPLIT)
def test_blocks_on_several_devices(variant: str, head: str | int) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    plain = tiny.model(variant, dtype=torch.float64)
    model = copy.deepcopy(plain)
    where = blocks_elsewhere(model, 0, first=1, head=head)
    accelerate.dispatch_model(model, where, main_device="cpu", force_hooks=True)
    before = places(model)
    assert {device.type for _, device, _ in before} == {"cpu", "cuda"}
    ways = [f"decompx(bias={bias})" for bias in ("none", "equal", "token-absdot")]  # vectors taken back, and forward
    for method in (*(each.name for each in wherefrom.methods()), *ways):
        ours, theirs = scores(model, method), scores(plain, method)
        assert (ours is None) == (theirs is None), method
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, atol=1e-7, err_msg=method)
    assert places(model) == before
