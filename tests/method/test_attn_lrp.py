"""AttnLRP and CP-LRP: LXT's numbers on BERT, the rules written out once more, and what holds whatever the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import golden
import tiny
import wherefrom
from oracles import attn_lrp as oracle
from wherefrom.method.propagated import HALVES
from wherefrom.model import collate
from wherefrom.model.capture import capture, rerunning
from wherefrom.model.frozen_pass import Freezing, Switch, _limit, freeze
from wherefrom.model.matrices import Ruled
from wherefrom.model.parts import Linear
from wherefrom.testing import awkward, refuse_changes, state

ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh")  # one function
WHERE = {"word": "word_embeddings", "embeddings": "embedding_output"}  # ours -> the golden name


def test_a_bert_classifier_has_the_relevance_of_lxt() -> None:
    """Through its tanh pooler, its GELUs and its norms after the residual; every class, both places to read."""
    folder = golden.case_folder(golden.BEYOND, "bert_dx")
    own = transformers.BertForSequenceClassification.from_pretrained(folder / "model", dtype=torch.float64)
    model = wherefrom.open_model(own)
    inputs, theirs = np.load(folder / "inputs.npz"), np.load(folder / "attnlrp.npz")
    for row in range(3):
        n = int(inputs["attention_mask"][row].sum())
        read = {name: inputs[name][row, :n].tolist() for name in ("input_ids", "token_type_ids")}
        for at, name in WHERE.items():
            for target in range(3):
                found = wherefrom.explain(read, model, method="attn-lrp", at=at, target=target)
                expected = theirs[f"s{row}/{name}"][:, target]
                assert np.abs(found.scores - expected).max() <= 1e-7 * np.abs(expected).max()


METHODS = ("attn-lrp", "cp-lrp")
FAMILIES = {
    **dict.fromkeys(("gpt2", "llama-biased", "gemma2", "glm4", "gpt_neox", "phi", "mixtral"), METHODS),
    **dict.fromkeys(("falcon-40b", "gptj"), METHODS[1:]),  # their passes do not note queries and keys
}


def opened(family: str, task: str = "causal-lm", **changes: Any) -> wherefrom.Model:
    return wherefrom.open_model(tiny.model(family, task, dtype=torch.float64, **changes))


def apart(ours: Any, theirs: Any) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize(
    ("family", "task"), [("bert", "classification"), *((family, "causal-lm") for family in FAMILIES)]
)
def test_relevance_is_what_the_rules_hand_down(family: str, task: str) -> None:
    model, ids = opened(family, task), tiny.ids(6)
    trace = wherefrom.capture(ids, model)
    for method in FAMILIES.get(family, METHODS):
        found = wherefrom.explain(ids, model, method=method, target=1)
        row = 0 if found.position is None else found.position

        def handed_down(method: str = method, row: int = row) -> Any:
            with torch.no_grad():
                return oracle.relevance(trace, row, 1, method)

        # The oracle asks the model for its rotary angles and its experts, which must be computed in float64 as well.
        assert apart(found.layer_scores, rerunning(model, handed_down).numpy()) < 1e-11, method


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "gpt2", "mistral", "olmoe"])
def test_padding_changes_nothing(family: str) -> None:
    task = "causal-lm" if family in ("mistral", "olmoe") else "classification"
    model, texts = opened(family, task), [tiny.ids(7), tiny.ids(4, seed=1)]
    for method in METHODS:
        together = wherefrom.explain(texts, model, method=method, target=1)
        alone = [wherefrom.explain(text, model, method=method, target=1) for text in texts]
        for ours, single in zip(together, alone, strict=True):
            assert apart(ours.scores, single.scores) < 1e-9
            assert ours.arrived == pytest.approx(single.arrived, rel=1e-9)
        if task == "causal-lm":  # whose positions are relative
            hidden = {"input_ids": [*tiny.ids(3, seed=2), *texts[1]], "attention_mask": [0] * 3 + [1] * 4}
            left = wherefrom.explain(hidden, model, method=method, target=1)
            assert not left.scores[:3].any()
            assert apart(left.scores[3:], alone[1].scores) < 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_a_contrast_is_the_difference_of_two(method: str) -> None:
    model, ids = opened("qwen2"), tiny.ids(6)
    one, other = (wherefrom.explain(ids, model, method=method, target=target) for target in (7, 8))
    both = wherefrom.explain(ids, model, method=method, target=7, foil=8)
    assert apart(both.scores, one.scores - other.scores) < 1e-11
    assert apart(both.layer_scores, one.layer_scores - other.layer_scores) < 1e-11


def test_all_of_the_logit_arrives_where_attention_is_constant_and_biases_are_none() -> None:
    model, ids = opened("llama"), tiny.ids(6)
    assert wherefrom.explain(ids, model, method="cp-lrp").arrived == pytest.approx(1, abs=1e-12)
    found = wherefrom.explain(ids, model, method="attn-lrp", target=1)
    logit = float(wherefrom.capture(ids, model).output.logits[0, -1, 1])
    assert found.delta is None
    assert found.arrived == pytest.approx(found.scores.sum() / logit)
    assert abs(found.arrived - 1) > 1e-3
    assert f"sums to {found.arrived:.0%} of the output" in found.to_html()


@pytest.mark.parametrize("family", ["big_bird", "roformer"])
def test_an_activation_that_a_head_makes_anew_in_every_pass_is_frozen_too(family: str) -> None:
    """Their classifiers write ACT2FN[…](x); of these two names of one function, one is made of several steps."""

    def made(activation: str) -> Any:
        config = transformers.AutoConfig.for_model(family, **{**tiny.SHAPE, "hidden_act": activation, "num_labels": 3})
        torch.manual_seed(0)
        model = transformers.AutoModelForSequenceClassification.from_config(config).double().eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.mul_(0 if name.endswith("bias") else 4)
        return model

    for method in ("cp-lrp", "attn-lrp"):
        steps, one = (wherefrom.explain(tiny.ids(6), made(each), method=method, target=1) for each in ACTIVATIONS)
        np.testing.assert_allclose(steps.scores, one.scores, atol=1e-9 * np.abs(one.scores).max())
        assert method == "attn-lrp" or steps.arrived == pytest.approx(1, abs=1e-9)
    assert not torch.nn.modules.module._global_forward_hooks, "nothing is left on all modules"


def test_positions_keep_their_share_at_the_word_embeddings() -> None:
    model, ids = opened("gpt2"), tiny.ids(6)
    words, all_of_it = (wherefrom.explain(ids, model, method="attn-lrp", at=at) for at in ("word", "embeddings"))
    assert apart(all_of_it.scores, all_of_it.layer_scores[0]) < 1e-12
    assert apart(words.scores, all_of_it.scores) > 1e-3


def test_an_activation_at_zero_has_its_limit() -> None:
    """Hidden units that are exactly 0, and as good as 0: the same relevance, and a number."""
    found = []
    for size in (0.0, 1e-13):
        model = tiny.model("gpt2", "causal-lm", dtype=torch.float64)
        with torch.no_grad():
            model.transformer.h[1].mlp.c_fc.weight.mul_(size)
            model.transformer.h[1].mlp.c_fc.bias.mul_(size)
        found.append(wherefrom.explain(tiny.ids(6), model, method="attn-lrp", target=1).scores)
    assert apart(*found) < 1e-10


def test_activations_share_a_limit_where_they_are_alike() -> None:
    z = torch.zeros(1)
    slopes = [_limit(torch.nn.LeakyReLU(slope).forward, z)[0] for slope in (0.1, 0.2, 0.1)]
    assert slopes == pytest.approx([0.1, 0.2, 0.1])
    learning = torch.nn.PReLU(init=0.3)
    assert _limit(learning.forward, z)[0] == pytest.approx(0.3)
    with torch.no_grad():
        learning.weight.fill_(0.4)
    assert _limit(learning.forward, z)[0] == pytest.approx(0.4)


def test_a_second_pass_tries_no_norm_again() -> None:
    model, ran = opened("llama"), 0
    norm, own = model.norms[0][0], type(model.norms[0][0]).forward

    def counted(*args: Any) -> Any:
        nonlocal ran
        ran += 1
        return own(norm, *args)

    norm.forward = counted
    for _ in range(2):
        wherefrom.explain(tiny.ids(4), model, method="attn-lrp", target=1)
    assert ran == 3  # and a plain pass, with which the first is compared


def test_the_frozen_pass_is_the_models_own_bit_by_bit() -> None:
    for family in ("gpt2", "gemma2", "qwen2_moe", "gpt_oss", "deberta"):
        model = opened(family, "causal-lm" if family != "deberta" else "classification")
        batch = collate(model.reader().read(tiny.ids(6))[0], model.pad_id)
        plain, frozen = capture(model, batch), capture(model, batch, frozen=Freezing())
        assert torch.equal(plain.output.logits, frozen.output.logits)


def test_experts_leave_the_model_as_it_was() -> None:
    model = awkward(tiny.model("mixtral", "causal-lm"))
    before = state(model)
    wherefrom.compare(tiny.ids(6), model, methods=[*METHODS, "gradient-x-input"], target=1)
    refuse_changes(before, state(model), "relevance of experts")


def test_gradient_methods_beside_it_keep_their_gradients() -> None:
    """One call, two graphs: the frozen pass is another one where somebody wants the true gradient."""
    model, ids = opened("bert", "classification"), tiny.ids(6)
    together = wherefrom.compare(ids, model, methods=["gradient-x-input", *METHODS, "alti"])
    for method in ("gradient-x-input", *METHODS, "alti"):
        assert apart(together[method].scores, wherefrom.explain(ids, model, method=method).scores) < 1e-12


@pytest.mark.parametrize(("epsilon", "gamma"), [(0.3, 0.0), (0.0, 0.5), (0.3, 0.5)])
def test_matrices_follow_the_epsilon_and_gamma_rules(epsilon: float, gamma: float) -> None:
    torch.manual_seed(0)
    x, weight, bias, given = (torch.randn(shape, dtype=torch.float64) for shape in ((4, 6), (6, 5), (5,), (4, 5)))
    z = x @ weight + bias
    parts = torch.cat([x[:, :, None] * weight, bias.expand(4, 1, 5)], 1)  # each input's, and last the bias's
    own = parts.sign() == z.sign()[:, None]
    parts = parts + gamma * parts * own
    expected = (parts / (parts.sum(1) + epsilon * z.sign())[:, None] * given[:, None]).sum(-1)[:, :-1]
    leaf = x.clone().requires_grad_()
    out = Ruled.apply(leaf, lambda t: t @ weight + bias, Linear(weight, bias), epsilon, gamma)
    assert torch.equal(out, z)
    (found,) = torch.autograd.grad(out, leaf, given / z)
    assert torch.allclose(x * found, expected, rtol=1e-12)


def test_the_gamma_rule_keeps_all_there_is_and_the_epsilon_rule_does_not() -> None:
    model, ids = opened("llama"), tiny.ids(6)
    plain, gamma, epsilon = (
        wherefrom.explain(ids, model, method=f"cp-lrp({options})", target=1)
        for options in ("", "gamma=0.5", "epsilon=1.0")
    )
    assert min(apart(found.scores, plain.scores) for found in (gamma, epsilon)) > 1e-3
    assert gamma.arrived == pytest.approx(1, abs=1e-10)
    assert abs(epsilon.arrived - 1) > 1e-3
    with pytest.raises(wherefrom.errors.Unsuited, match="experts keep theirs in one piece"):
        wherefrom.explain(ids, opened("mixtral"), method="attn-lrp", gamma=0.1)


@pytest.mark.parametrize("family", ["bert", "gpt2", "gemma2", "gptj", "deberta-v2", "modernbert"])
def test_cp_lrp_is_decompx_without_biases_and_gates(family: str) -> None:
    """Two ways that share no code: a frozen pass of the model's own, and blocks put together from their parts."""
    model = opened(family, "causal-lm" if family in ("gpt2", "gemma2", "gptj") else "classification")
    found = wherefrom.explain(tiny.ids(6), model, method="cp-lrp", target=1)
    other = wherefrom.explain(
        tiny.ids(6), model, method="decompx", bias="none", value_bias="spread", gate="gate", target=1
    )
    assert apart(found.layer_scores, other.layer_scores) < 1e-11


def halved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a · b, of whose gradient each side gets half."""
    return (a * b.detach() + a.detach() * b) / 2


def experts_of_gpt_oss(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Token by token, expert by expert: z σ(1.702 z) is an activation, which a clamped z + 1 is multiplied with."""
    experts, router = module.experts, module.router
    rows = []
    for token in x:
        best = (token @ router.weight.T + router.bias).topk(router.top_k)
        row = torch.zeros_like(token)
        for share, e in zip(best.values.softmax(-1), best.indices.tolist(), strict=True):
            units = token @ experts.gate_up_proj[e] + experts.gate_up_proj_bias[e]
            gate, up = units[::2].clamp(max=experts.limit), units[1::2].clamp(-experts.limit, experts.limit)
            hidden = halved(up + 1, gate * torch.sigmoid(gate * experts.alpha).detach())
            row = row + halved(share, hidden @ experts.down_proj[e] + experts.down_proj_bias[e])
        rows.append(row)
    return torch.stack(rows)


def test_experts_with_a_gate_of_their_own_making_follow_the_rules() -> None:
    model = opened("gpt_oss")
    module, switch = model.blocks[0].part("mlp"), Switch(HALVES)
    torch.manual_seed(0)
    x, given = torch.randn(2, 5, 24, dtype=torch.float64)
    found = []
    for run in (lambda leaf: module(leaf[None])[0][0], lambda leaf: experts_of_gpt_oss(module, leaf)):

        def back(run: Any = run) -> Any:
            if not found:
                freeze(model, switch, Freezing())
            leaf = x.clone().requires_grad_()
            return torch.autograd.grad(run(leaf), leaf, given)[0]

        found.append(rerunning(model, back))
    assert torch.allclose(*found, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("family", "changes"), [("cohere", {"use_qk_norm": True, "head_dim": 6}), ("stablelm", {"qk_layernorm": True})]
)
def test_norms_of_single_heads_are_known(family: str, changes: dict[str, Any]) -> None:
    model = opened(family, **changes)
    frozen = {type(module).__name__ for module, _ in model.norms}
    assert frozen == ({"CohereLayerNorm"} if family == "cohere" else {"LayerNorm"})
    assert wherefrom.explain(tiny.ids(6), model, method="attn-lrp", target=1).scores.any()
