"""LRP: rules and whole models against slow oracles, the authors' numbers, conservation, float32, a model untouched."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import golden
import tiny
import wherefrom
from oracles import relevance as oracle
from traces import apart, with_outliers
from wherefrom.errors import WherefromError
from wherefrom.method import lrp_rules as rules
from wherefrom.method import relevance
from wherefrom.model import OutputTrace, answers, double_twin
from wherefrom.model.double_twin import double_trace

EXACT = 1e-9  # both in float64; the rules divide by sums that cancel, so not to the last digit
LENGTHS = (7, 4)
HEADS = [
    *((variant, "classification") for variant in tiny.VARIANTS),
    *((variant, "masked-lm") for variant in ("bert", "electra", "roberta", "distilbert", "albert")),
    *((variant, task) for variant in ("bert", "gpt2") for task in ("token-classification", "question-answering")),
    ("gpt2", "causal-lm"),
    ("gpt2-encoder", "causal-lm"),
]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def output_of(model: Any, inputs: Any, target: Any = None, foil: Any = None, position: Any = None) -> OutputTrace:
    trace = wherefrom.capture(inputs, model)
    found = [
        answers(trace.opened, sentence, trace.output, row, target, foil, position)[0]
        for row, sentence in enumerate(trace.batch.sentences)
    ]
    return OutputTrace(trace, found)


def head_of(variant: str, task: str) -> tuple[str, ...]:
    kind = tiny.VARIANTS[variant][0]
    return oracle.ONE_LAYER.get(task) or oracle.HEADS[kind, task]


def asked(variant: str, task: str, n: int) -> tuple[dict[str, Any], int, int]:
    """The options of `explain`, and where the oracle has to start: position and output."""
    if task == "classification":
        return {"target": 2}, n - 1 if variant.startswith("gpt2") else 0, 2
    if task == "question-answering":
        return {"target": "end", "position": 1}, 1, 1
    return {"target": 2, "position": 1}, 1, 2


# The rules ------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9), st.integers(0, 999), st.sampled_from([1, 300, 2**22]))
def test_linear_is_the_authors_two_products_in_tiles_of_any_size(n: int, d: int, m: int, seed: int, tile: int) -> None:
    x, weight, r = random(1, n, d, seed=seed), random(d, m, seed=seed + 1), random(1, n, m, seed=seed + 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "TILE", tile)
        found = rules.linear(x, weight, r, x @ weight)
    expected = oracle.linear(x, weight.T, r)
    assert (found - expected).abs().max() <= 1e-9 * r.abs().sum()


def test_an_output_without_positive_terms_passes_nothing_on() -> None:
    x, weight = random(1, 4, 300).abs(), -random(300, 3, seed=1).abs()
    weight[:, 1] *= -1  # all terms positive here, none elsewhere
    r = torch.ones(1, 4, 3, dtype=torch.float64)
    product = x.flip(-1) @ weight.flip(0)  # its sums are rounded otherwise than those of the rule
    assert (product + x.abs() @ weight.abs())[..., [0, 2]].count_nonzero() > 0
    found = rules.linear(x, weight, r, product)
    assert apart(found, oracle.linear(x, weight.T, r)) < EXACT
    assert found.sum(-1).allclose(r[..., 1])


@given(st.integers(1, 4), st.integers(1, 9), st.integers(0, 999))
def test_one_output_is_linear_with_one_column(size: int, d: int, seed: int) -> None:
    x, weight, r = random(size, d, seed=seed), random(size, d, seed=seed + 1), random(size, seed=seed + 2)
    found = rules.linear_one(x, weight, r)
    for row in range(size):
        assert found[row].allclose(oracle.linear(x[row], weight[row : row + 1], r[row : row + 1]), rtol=1e-9)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
def test_matmul_shares_between_its_factors(size: int, n: int, k: int, m: int, seed: int) -> None:
    a, b, r = (
        random(size, 2, n, k, seed=seed),
        random(size, 2, k, m, seed=seed + 1),
        random(size, 2, n, m, seed=seed + 2),
    )
    found = rules.matmul(a, b, r, a @ b)
    for mine, theirs in zip(found, oracle.matmul(a, b, r), strict=True):
        assert apart(mine, theirs) < EXACT
        assert float(mine.sum()) == pytest.approx(float(r.sum()) / 2, rel=1e-5, abs=1e-6)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
def test_add_shares_within_each_sentence(size: int, n: int, d: int, seed: int) -> None:
    a, b, r = random(size, n, d, seed=seed), random(size, n, d, seed=seed + 1), random(size, n, d, seed=seed + 2)
    found = rules.add(a, b, r)
    for row in range(size):
        for mine, theirs in zip(found, oracle.add(a[row], b[row], r[row]), strict=True):
            assert apart(mine[row], theirs) < EXACT
        whole = float(found[0][row].sum() + found[1][row].sum())
        assert whole == pytest.approx(float(r[row].sum()), rel=1e-5, abs=1e-6)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(0, 999))
def test_clone_adds_up(n: int, d: int, seed: int) -> None:
    x, copies = random(1, n, d, seed=seed), [random(1, n, d, seed=seed + k) for k in (1, 2, 3)]
    x[0, 0, 0] = 0
    found = rules.clone(x, *copies)
    assert found.allclose(oracle.clone(x, *copies), rtol=EXACT)
    real = x != 0  # relevance of a zero has nowhere to go
    assert float(found[real].sum()) == pytest.approx(float(sum(copies)[real].sum()), rel=1e-5, abs=1e-6)


def test_linear_conserves() -> None:
    x, weight, r = random(2, 5, 30), random(30, 8, seed=1), random(2, 5, 8, seed=2)
    found = rules.linear(x, weight, r, x @ weight)
    assert found.sum(-1).allclose(r.sum(-1), rtol=1e-7)


# Whole models ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variant", "task"), HEADS)
def test_every_family_and_head_against_the_oracle_in_a_padded_batch(variant: str, task: str) -> None:
    model = tiny.model(variant, task, dtype=torch.float64)
    sentences = [tiny.ids(n, seed=n) for n in LENGTHS]
    for n, ids in zip(LENGTHS, sentences, strict=True):
        options, position, index = asked(variant, task, n)
        output = output_of(model, sentences, **options)
        row = sentences.index(ids)
        expected = oracle.relevance(model, ids, head_of(variant, task), position, index)
        for found, theirs in zip(relevance._relevance(output).attention, expected.attention, strict=True):
            assert apart(found[row, :, :n, :n], theirs) < EXACT
            assert found[row, :, n:].count_nonzero() == found[row, :, :, n:].count_nonzero() == 0
        scores, layers, *_ = relevance.full_lrp(output)
        assert apart(scores[row, :n], expected.embeddings) < EXACT
        assert apart(layers[:, row, :n], expected.inputs) < EXACT
        assert scores[row, n:].count_nonzero() == 0
        assert float(scores[row].sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("variant", ["bert", "distilbert", "gpt2-encoder"])
def test_tokens_hidden_by_the_callers_mask_equal_the_oracle(variant: str) -> None:
    model = tiny.model(variant, dtype=torch.float64)
    ids, visible = tiny.ids(6), [0, 1, 1, 0, 1, 1]
    output = output_of(model, {"input_ids": ids, "attention_mask": visible}, target=1)
    position = 5 if variant.startswith("gpt2") else 0
    expected = oracle.relevance(model, ids, head_of(variant, "classification"), position, 1, visible)
    for found, theirs in zip(relevance._relevance(output).attention, expected.attention, strict=True):
        assert apart(found[0], theirs) < EXACT


@pytest.mark.parametrize("layers", [1, 2])
def test_shallow_models_equal_the_oracle(layers: int) -> None:
    model = tiny.model(dtype=torch.float64, num_hidden_layers=layers)
    expected = oracle.relevance(model, tiny.ids(5), head_of("bert", "classification"), 0, 0)
    found = wherefrom.explain(tiny.ids(5), model, method="full-lrp", target=0)
    assert apart(torch.from_numpy(found.scores), expected.embeddings) < EXACT


@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_the_three_methods_read_the_same_relevance(variant: str) -> None:
    model, ids = tiny.model(variant, dtype=torch.float64), tiny.ids(6)
    output = output_of(model, ids, target=1)
    r = torch.stack([layer[0] for layer in relevance._relevance(output).attention])
    partial = wherefrom.explain(ids, model, method="PartialLRP", target=1)
    assert apart(torch.from_numpy(partial.maps), r.clamp(min=0).mean(1)) < EXACT
    assert (partial.scores == partial.maps[-1, partial.position]).all()

    found = wherefrom.explain(ids, model, method="TransAtt", target=1)
    graph = wherefrom.capture(ids, model, grad=True)
    attention = [layer.raw["attention"] for layer in graph.layers]
    gradients = torch.autograd.grad(graph.output.logits[0, 1], attention)
    joint = torch.eye(6, dtype=torch.float64)
    for layer, gradient in enumerate(gradients):
        step = (gradient[0] * r[layer]).clamp(min=0).mean(0) + torch.eye(6)
        joint = step / step.sum(-1, keepdim=True) @ joint
        assert apart(torch.from_numpy(found.aggregated[layer]), joint) < EXACT
    late = wherefrom.explain(ids, model, method="TransAtt", target=1, start_layer=2)
    assert apart(torch.from_numpy(late.aggregated[-1]), step / step.sum(-1, keepdim=True)) < EXACT


@pytest.mark.parametrize("case", golden.having("attcat"), ids=lambda case: case.name)
def test_relevance_equals_the_authors_numbers(case: golden.Golden) -> None:
    model = case.model()
    last = model.config.num_hidden_layers - 1
    names: dict[str, dict[str, Any]] = {
        "TransAtt": {},
        "TransAtt_lastlayer": {"start_layer": last},
        "PartialLRP": {},
        "FullLRP": {},
    }
    for sentence in case.sentences("attcat"):
        ids = case.ids(sentence)
        for mask, visible in {"full": [1] * len(ids), "special0": [0, *[1] * (len(ids) - 2), 0]}.items():
            encoding = {"input_ids": ids, "attention_mask": visible}
            for target in range(model.config.num_labels):
                for name, options in names.items():
                    if (key := ("attcat", f"{sentence}_{mask}_class{target}_{name}")) not in case:
                        continue  # the trimmed fixtures hold some of the classes
                    found = wherefrom.explain(
                        encoding, model, method=name.split("_")[0], target=target, drop_self=True, **options
                    )
                    assert apart(torch.from_numpy(found.scores), torch.from_numpy(case[key])) < 1e-6
                if (key := ("attcat", f"{sentence}_{mask}_class{target}_attn_cam")) in case:
                    maps = relevance._relevance(output_of(model, encoding, target)).attention
                    assert apart(torch.cat(maps), torch.from_numpy(case[key])) < 1e-6


# Two terms ------------------------------------------------------------------------------------------------


def test_a_foil_is_a_difference_and_a_neighbour_without_one_is_left_alone() -> None:
    model = tiny.model(dtype=torch.float64)
    ids = tiny.ids(6)
    alone = [wherefrom.explain(ids, model, method="full-lrp", target=k).scores for k in (0, 2)]
    pair = wherefrom.explain([ids, ids], model, method="full-lrp", target=[0, 2], foil=[2, None])
    assert np.allclose(pair[0].scores, alone[0] - alone[1], rtol=1e-9)
    assert np.allclose(pair[1].scores, alone[1], rtol=1e-9)
    assert abs(pair[0].scores.sum()) < 1e-6 < np.abs(pair[0].scores).max()


def test_an_answer_is_the_sum_of_start_and_end() -> None:
    model = tiny.model("bert", "question-answering", dtype=torch.float64)
    ids = tiny.ids(8)
    both = output_of(model, ids, target="answer")
    start, end = both.answers[0].target.index, both.answers[0].target.end
    head = head_of("bert", "question-answering")
    expected = [oracle.relevance(model, ids, head, *where).embeddings for where in ((start, 0), (end, 1))]
    assert apart(relevance.full_lrp(both).scores[0], sum(expected)) < EXACT


# Precision ------------------------------------------------------------------------------------------------


def classifier_with_outliers(dtype: torch.dtype) -> Any:
    """What `with_outliers` imitates of trained models, with a head."""
    encoder = with_outliers(torch.float64)
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(encoder.config)
    model.bert.embeddings, model.bert.encoder = encoder.embeddings, encoder.encoder
    return model.to(dtype).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_relevance_does_not_depend_on_the_dtype(dtype: torch.dtype) -> None:
    low = classifier_with_outliers(dtype)
    weights = {name: weight.double() for name, weight in low.state_dict().items()}
    high = classifier_with_outliers(torch.float64)
    high.load_state_dict(weights)
    for seed in range(5):
        ids = tiny.ids(12, seed=seed)
        pair = [wherefrom.explain(ids, model, method="full-lrp", target=1).scores for model in (low, high)]
        assert np.abs(pair[0] - pair[1]).max() <= 1e-12 * np.abs(pair[1]).max()
        if dtype == torch.float32:
            pair = [wherefrom.explain(ids, model, method="TransAtt", target=1).scores for model in (low, high)]
            assert np.abs(pair[0] - pair[1]).max() <= 1e-5 * np.abs(pair[1]).max()


def test_gpt2s_upcast_of_half_precision_leaves_float64_alone() -> None:
    found = []
    for upcast in (False, True):
        model = tiny.model("gpt2", dtype=torch.bfloat16, reorder_and_upcast_attn=upcast)
        found.append(wherefrom.explain(tiny.ids(6), model, method="full-lrp", target=1).scores)
    assert np.abs(found[0] - found[1]).max() <= 1e-12 * np.abs(found[0]).max()


@pytest.mark.parametrize("variant", ["bert", "gpt2"])
def test_a_single_token_is_the_whole_answer(variant: str) -> None:
    model = tiny.model(variant)
    assert wherefrom.explain([7], model, method="full-lrp", target=0).scores == pytest.approx(1, abs=1e-5)
    assert wherefrom.explain([7], model, method="transformer-attribution", target=0).scores == pytest.approx(1)


def test_one_block_at_a_time_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model(num_hidden_layers=6)
    alive: dict[int, int] = {}
    most = 0
    convert = double_twin._double

    def counted(parameter: Any) -> Any:
        nonlocal most
        found = convert(parameter)
        if found is not None:
            alive[id(found)] = found.numel()
            weakref.finalize(found, alive.pop, id(found))
            most = max(most, sum(alive.values()))
        return found

    monkeypatch.setattr(double_twin, "_double", counted)
    output = output_of(model, tiny.ids(5))
    gc.disable()
    try:
        relevance._relevance(output)
    finally:
        gc.enable()
    block = sum(weight.numel() for weight in model.bert.encoder.layer[0].parameters())
    whole = sum(weight.numel() for weight in model.parameters())
    outside = whole - 6 * block - model.bert.embeddings.word_embeddings.weight.numel()
    assert most <= outside + 2 * block  # the last one goes as the next one comes
    assert most < whole / 2


# The pass in float64 --------------------------------------------------------------------------------------


def test_all_methods_and_all_classes_share_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str) -> None:
        function = getattr(relevance, name)
        monkeypatch.setattr(relevance, name, lambda *args: calls.append(name) or function(*args))

    counted("double_trace")
    counted("_propagated")
    names = ["partial-lrp", "transformer-attribution", "full-lrp"]
    wherefrom.compare(tiny.ids(5), tiny.model(), methods=names, target="all")
    assert calls == ["_propagated", "double_trace", "_propagated", "_propagated"]  # once for each class


def test_a_users_own_hook_takes_part() -> None:
    model = tiny.model()
    opened = wherefrom.open_model(model)
    batch = wherefrom.capture(tiny.ids(5), opened).batch
    handle = model.bert.encoder.layer[1].register_forward_hook(lambda _m, _a, out: out + 1.0)
    with pytest.raises(WherefromError, match="block 1 rebuilt from its parts does not give the model's own numbers"):
        wherefrom.open_model(model)
    found = double_trace(opened, batch)  # of one that was opened before
    entered: list[Tensor] = []
    model.classifier.register_forward_pre_hook(lambda _m, a: entered.append(a[0]))
    model(batch.ids)
    handle.remove()
    assert found.after[-1].x.dtype == torch.float64
    assert apart(found.after[-1].x, entered[0].detach().double()) < 1e-5


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_untouched(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model("electra").train()
    before = {name: (id(weight), weight.dtype, weight.clone()) for name, weight in model.named_parameters()}
    modules = {name: id(module) for name, module in model.named_modules()}
    implementation = model.config._attn_implementation
    if fails:
        batch, opened = wherefrom.capture(tiny.ids(5), model).batch, wherefrom.open_model(model)
        activation = type(model.electra.encoder.layer[0].intermediate.intermediate_act_fn)
        monkeypatch.setattr(activation, "forward", lambda *_: 1 / 0)  # in the middle of the first block
        with pytest.raises(ZeroDivisionError):
            double_trace(opened, batch)
    else:
        wherefrom.explain(tiny.ids(5), model, method="transformer-attribution")
    assert {name: id(module) for name, module in model.named_modules()} == modules
    for name, weight in model.named_parameters():
        identity, dtype, value = before[name]
        assert (id(weight), weight.dtype, weight.grad) == (identity, dtype, None)
        assert weight.requires_grad
        assert torch.equal(weight, value)
    for module in model.modules():
        assert module.training
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert model.config._attn_implementation == implementation


# What is refused ------------------------------------------------------------------------------------------


def test_what_cannot_be_explained_is_refused() -> None:
    with pytest.raises(WherefromError, match="it needs an output of a linear layer, and this model has no head"):
        wherefrom.explain(tiny.ids(5), tiny.model("bert", "encoder"), method="full-lrp")
    with pytest.raises(WherefromError, match="start_layer is 3; expected a layer of the model's 3, 0 to 2"):
        wherefrom.explain(tiny.ids(5), tiny.model(), method="transformer-attribution", start_layer=3)
    with pytest.raises(WherefromError, match="has no option 'of'"):
        wherefrom.explain(tiny.ids(5), tiny.model(), method="partial-lrp", of="probability")


def test_nothing_of_the_second_pass_waits_for_the_collector() -> None:
    """On a GPU it would be gigabytes."""

    def held() -> int:
        return sum(isinstance(each, Tensor) for each in gc.get_objects())

    opened = wherefrom.open_model(tiny.model("bert"))
    gc.collect()
    gc.disable()
    try:
        wherefrom.explain(tiny.ids(5), opened, method="transformer-attribution", target=0)
        left = held()
        gc.collect()
        assert held() == left
    finally:
        gc.enable()
