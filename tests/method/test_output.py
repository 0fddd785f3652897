"""Methods that explain one number: against finite differences, slow oracles and the authors' figures."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import golden
import tiny
import wherefrom
from oracles import attcat as oracle
from wherefrom.model import open_model

TOKENIZER = tiny.tokenizer()
TEXTS = ["the film is deep and meaningful", "a cat", "the keys to the cabinets are not good !"]
SCORES = [each.name for each in tiny.methods() if each.class_specific]


def relative(found: Any, expected: Any) -> float:
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-300))


def _figures(case: golden.Golden, prefix: str, key: str) -> Any:
    return case["attcat", prefix + key]


# The authors' figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", golden.having("attcat"), ids=lambda case: case.name)
@pytest.mark.parametrize("mask", ["full", "special0"])
def test_attcats_own_numbers(case: golden.Golden, mask: str) -> None:
    model = case.model()
    compared = 0
    for sentence in case.sentences("attcat"):
        ids = case.ids(sentence)
        seen = [1] * len(ids) if mask == "full" else [0, *[1] * (len(ids) - 2), 0]
        encoding = {"input_ids": ids, "attention_mask": seen}
        for target in range(3):
            prefix = f"{sentence}_{mask}_class{target}_"
            if ("attcat", prefix + "AttCAT") not in case:
                continue  # the trimmed fixtures hold some classes only
            compared += 1

            explained = partial(wherefrom.explain, encoding, model, target=target)
            figures = partial(_figures, case, prefix)
            found = explained(method="AttCAT")
            assert relative(found.scores, figures("AttCAT")) <= 1e-8
            assert relative(found.layer_scores, figures("derived_AttCAT_layers")) <= 1e-8
            assert found.signed
            assert relative(explained(method="CAT").scores, figures("derived_CAT_sum")) <= 1e-8
            assert relative(explained(method="CAT").layer_scores, figures("derived_CAT_layers")[:-1]) <= 1e-8
            outputs = explained(method="CAT", at="output").layer_scores
            assert relative(outputs, figures("derived_CAT_layers")[1:]) <= 1e-8
            assert relative(explained(method="saliency").layer_scores, figures("derived_grad_norm_layers")[:-1]) <= 1e-8
            if ("attcat", prefix + "attn_grad") in case:
                assert relative(explained(method="grads").maps, figures("attn_grad").mean(1)) <= 1e-8
            gradcam, theirs = explained(method="attention-gradcam", drop_self=True).scores, figures("AttGrads")
            if np.isnan(theirs).any():  # everything clamped away: their 0/0 is our 0
                assert not gradcam.any()
            else:
                assert relative(gradcam, theirs) <= 1e-8
    assert compared


@pytest.mark.parametrize("case", golden.having("paper_gradients"), ids=lambda case: case.name)
def test_gradients_equal_the_golden_numbers(case: golden.Golden) -> None:
    model = case.model()
    methods = {
        "grad_l2": ("saliency", "l2"),
        "gradxinput_dot": ("gradient-x-input", "dot"),
        "gradxinput_l2": ("gradient-x-input", "l2"),
    }
    keys = [key for key in case.keys("paper_gradients") if "HTA" not in key]
    assert keys
    for key in keys:
        sentence, at, of, target, *rest = key.split("_")
        method, norm = methods["_".join(rest)]
        found = wherefrom.explain(
            case.ids(sentence),
            model,
            method=method,
            norm=norm,
            at={"word": "word", "embout": "embeddings"}[at],
            of={"logit": "logit", "prob": "probability"}[of],
            target=int(target.removeprefix("class")),
        )
        assert relative(found.scores, case["paper_gradients", key]) <= 1e-8
        assert found.signed == (norm == "dot")


@pytest.mark.parametrize("case", golden.having("alti_gradients"), ids=lambda case: case.name)
def test_altis_gradients_come_from_embedding_twice(case: golden.Golden) -> None:
    """Their wrapper feeds the embedding module's output in as word embeddings. Doing the same gives their numbers."""
    model = case.model()
    for sentence in case.sentences("alti_gradients"):
        ids = torch.tensor([case.ids(sentence)])
        target = int(case["alti_gradients", f"{sentence}_pred_class"])
        once = model.base_model.embeddings(ids).detach().requires_grad_()
        if case.name == "distilbert":  # transformers 4.18, which they used, fed DistilBERT's blocks directly
            handle = model.base_model.embeddings.register_forward_hook(lambda *_, once=once: once)
            p = model(ids).logits.softmax(-1)[0, target]
            handle.remove()
        else:
            p = model(inputs_embeds=once).logits.softmax(-1)[0, target]
        (gradient,) = torch.autograd.grad(p, once)
        norms = gradient[0].norm(dim=-1).detach().numpy()
        theirs = case["alti_gradients", f"{sentence}_grad_l2"]
        assert relative(norms / norms.sum(), theirs) <= 1e-7
        ours = wherefrom.explain(ids[0], model, method="saliency", of="probability", target=target).scores
        same = relative(ours / ours.sum(), theirs) <= 1e-7
        assert same == (case.name == "distilbert")  # the true model is embedded once


# Oracles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_cat_attcat_and_grad_sam_against_slow_oracles(variant: str) -> None:
    model, ids, target = tiny.model(variant, dtype=torch.float64), tiny.ids(5), 1
    depth = open_model(model).depth
    found = wherefrom.explain(ids, model, method="attcat", target=target)
    plain = wherefrom.explain(ids, model, method="cat", target=target)
    for layer in range(depth):
        assert relative(plain.layer_scores[layer], oracle.cat(model, ids, target, layer)) <= 1e-10
        assert relative(found.layer_scores[layer], oracle.attcat(model, ids, target, layer)) <= 1e-10
    assert relative(found.scores, found.layer_scores.sum(0)) <= 1e-12
    sam = wherefrom.explain(ids, model, method="Grad-SAM", target=target)
    assert relative(sam.scores, oracle.grad_sam(model, ids, target)) <= 1e-10
    assert np.array_equal(found.magnitude * found.direction, found.scores)


@pytest.mark.parametrize("variant", tiny.VARIANTS)
def test_gradients_against_finite_differences(variant: str) -> None:
    """The derivative of the true model at its embeddings, one component at a time."""
    model, ids = tiny.model(variant, dtype=torch.float64), tiny.ids(4)
    module = open_model(model).part(open_model(model).family.embeddings)
    kept: dict[str, Any] = {}

    def logit(change: Any = None) -> float:
        def hook(_m: Any, _a: Any, out: Any) -> Any:
            kept["e"] = out.detach()
            return out if change is None else out + change

        handle = module.register_forward_hook(hook)
        with torch.no_grad():
            model.set_attn_implementation("eager")
            value = float(model(torch.tensor([ids])).logits[0, 2])
        handle.remove()
        return value

    logit()
    e = kept["e"]
    gradient = torch.zeros_like(e)
    for i, k in [(0, 0), (1, 3), (3, 7), (2, 11)]:
        step = torch.zeros_like(e)
        step[0, i, k] = 1e-5
        gradient[0, i, k] = (logit(step) - logit(-step)) / 2e-5
    trace = wherefrom.capture([ids], model, grad=True)
    (exact,) = torch.autograd.grad(trace.output.logits[0, 2], trace.embeddings)
    chosen = gradient != 0
    assert float((exact - gradient)[chosen].abs().max()) <= 1e-7
    found = wherefrom.explain(ids, model, method="gradient-x-input", target=2)
    assert relative(found.scores, (exact * e).sum(-1)[0].numpy()) <= 1e-10
    assert (
        relative(
            wherefrom.explain(ids, model, method="saliency", target=2, norm="l1").scores, exact.abs().sum(-1)[0].numpy()
        )
        <= 1e-10
    )


@pytest.mark.parametrize("by", ["unknown", "mask", "pad", 7, "delete"])
@pytest.mark.parametrize("variant", ["bert", "roberta", "gpt2", "gpt2-encoder"])
def test_ablation_against_one_run_per_token(variant: str, by: Any) -> None:
    model = tiny.model(variant, dtype=torch.float64)
    model.set_attn_implementation("eager")
    names = {"unknown": TOKENIZER.unk_token_id, "mask": TOKENIZER.mask_token_id, "pad": TOKENIZER.pad_token_id}
    blank = names.get(by, by)
    results = wherefrom.explain(TEXTS, model, TOKENIZER, method="ablation", by=by, target=1)
    for found, text in zip(results, TEXTS, strict=True):
        ids = TOKENIZER(text)["input_ids"]

        def p(ids: list[int]) -> float:
            """By embeddings, which leave positions and the token read (GPT-2: the last) as they are for any blank."""
            with torch.no_grad():
                inputs = torch.tensor([ids])
                places = torch.arange(len(ids))[None] + (2 if variant == "roberta" else 0)
                given = {"inputs_embeds": model.get_input_embeddings()(inputs), "position_ids": places}
                # The tokenizer gives token types, which GPT-2 adds to its embeddings like any others.
                return float(model(**given, token_type_ids=torch.zeros_like(inputs)).logits.softmax(-1)[0, 1])

        expected = []
        for i in range(len(ids)):
            if by != "delete":
                expected.append(p(ids) - p([*ids[:i], blank, *ids[i + 1 :]]))
            elif i in (0, len(ids) - 1):
                expected.append(0.0)
            else:
                expected.append(p(ids) - p(ids[:i] + ids[i + 1 :]))
        assert np.abs(found.scores - expected).max() <= 1e-10


def test_ablation_of_words_pairs_and_against_a_foil() -> None:
    model = tiny.model(dtype=torch.float64)
    by_word = wherefrom.explain("the meaningful film", model, TOKENIZER, method="ablation", unit="word")
    assert by_word.tokens[2:4] == ["meaning", "##ful"]
    assert by_word.scores[2] == by_word.scores[3]
    pairs = wherefrom.explain("the meaningful film", model, TOKENIZER, method="ablation-pairs").maps[0]
    assert np.allclose(pairs, pairs.T)
    assert pairs[2, 3] == pytest.approx(by_word.scores[2], abs=1e-12)
    single = wherefrom.explain("the meaningful film", model, TOKENIZER, method="ablation")
    assert np.allclose(np.diag(pairs), single.scores, atol=1e-12)
    lm = tiny.model(task="masked-lm", dtype=torch.float64)
    asked = {"target": "cat", "foil": "dog"}
    pair = wherefrom.explain("the [MASK] film", lm, TOKENIZER, method="ablation", **asked)
    every = wherefrom.explain("the [MASK] film", lm, TOKENIZER, method="ablation", over="all", **asked)
    cat, dog = TOKENIZER.convert_tokens_to_ids(["cat", "dog"])
    ids = TOKENIZER("the [MASK] film")["input_ids"]

    def p(ids: list[int], over: str) -> float:
        with torch.no_grad():
            logits = lm(torch.tensor([ids])).logits[0, 2]
        return float(logits[[cat, dog]].softmax(-1)[0] if over == "pair" else logits.softmax(-1)[cat])

    without = [*ids[:3], TOKENIZER.unk_token_id, *ids[4:]]
    assert pair.scores[3] == pytest.approx(p(ids, "pair") - p(without, "pair"), abs=1e-12)
    assert every.scores[3] == pytest.approx(p(ids, "all") - p(without, "all"), abs=1e-12)


# What they promise -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:integrated gradients have not converged")
@pytest.mark.parametrize("variant", ["bert", "electra", "gpt2", "gpt2-encoder"])
def test_integrated_gradients_add_up_ever_better(variant: str) -> None:
    model = tiny.model(variant, dtype=torch.float64)
    deltas = []
    for steps in (2, 8, 64):
        found = wherefrom.explain(TEXTS, model, TOKENIZER, method="IG", n_steps=steps, target=0)
        deltas.append(max(abs(each.delta) for each in found))
    assert deltas[0] > deltas[1] > deltas[2]
    assert deltas[2] <= 1e-6
    ids = TOKENIZER(TEXTS[0])["input_ids"]
    blank = [i if i in TOKENIZER.all_special_ids else TOKENIZER.mask_token_id for i in ids]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        types = {"token_type_ids": torch.zeros(1, len(ids), dtype=torch.long)}
        inputs, blanked = torch.tensor([ids]), torch.tensor([blank])
        change = float(model(inputs, **types).logits[0, 0] - model(blanked, **types).logits[0, 0])
    assert found[0].scores.sum() == pytest.approx(change, abs=1e-6)
    assert found[0].scores[0] == pytest.approx(0, abs=1e-12) if variant == "bert" else True


def test_integrated_gradients_from_other_baselines_and_layers() -> None:
    model = tiny.model(dtype=torch.float64)
    for baseline in ("mask", "pad", "unknown", "zero", 9, [9] * 9):
        found = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="IG", n_steps=50, baseline=baseline)
        assert abs(found.delta) <= 1e-4
    for layer in (0, 2):
        found = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="IG", n_steps=50, layer=layer)
        assert abs(found.delta) <= 1e-6
    at_input = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="IG", layer=0)
    assert np.allclose(at_input.scores, wherefrom.explain(TEXTS[0], model, TOKENIZER, method="IG").scores)


@pytest.mark.parametrize("method", ["saliency", "attcat", "integrated-gradients", "ablation"])
def test_an_answers_probability_does_not_depend_on_padding(method: str) -> None:
    model = tiny.model(task="question-answering", dtype=torch.float64)
    texts = [("is it good ?", "the film"), ("is the film very good ?", "the deep and meaningful film is very good !")]
    together = wherefrom.explain(texts, model, TOKENIZER, method=method, of="probability")
    for text, found in zip(texts, together, strict=True):
        alone = wherefrom.explain(text, model, TOKENIZER, method=method, of="probability")
        assert np.allclose(found.scores, alone.scores, atol=1e-9)


def test_gradients_in_inference_mode() -> None:
    model = tiny.model()
    with torch.inference_mode():
        found = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="attcat")
    assert np.allclose(found.scores, wherefrom.explain(TEXTS[0], model, TOKENIZER, method="attcat").scores)


@pytest.mark.parametrize("variant", ["bert", "gpt2", "modernbert"])
def test_a_model_that_was_opened_before_answers_in_inference_mode(variant: str) -> None:
    """Everything that is made for it then, a norm's probe too, is good for gradients."""
    asks: tuple[Callable[[Any], Any], ...] = (
        lambda model: wherefrom.explain(TEXTS[0], model, method="decompx").scores,
        lambda model: wherefrom.capture(TEXTS[0], model, grad=True).layers[0].x.detach(),
        lambda model: [each.target for each in wherefrom.logit_lens(TEXTS[0], model)],
    )
    for ask in asks:
        opened = wherefrom.open_model(tiny.model(variant), TOKENIZER)
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("error")
            found = ask(opened)
            assert torch.is_inference_mode_enabled()
        assert np.allclose(found, ask(wherefrom.open_model(tiny.model(variant), TOKENIZER)), atol=1e-6)


@pytest.mark.parametrize("method", ["cp-lrp", "decompx", "ablation", "alti"])
def test_autocast_is_left_for_as_long_as_a_model_is_explained(method: str) -> None:
    """A model in float32 would be explained in bfloat16, and refused where that is noticed."""
    expected = wherefrom.explain(TEXTS[0], tiny.model(), TOKENIZER, method=method)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = wherefrom.explain(TEXTS[0], tiny.model(), TOKENIZER, method=method)
        assert torch.is_autocast_enabled("cpu")
    assert np.allclose(found.scores, expected.scores, atol=1e-6)


def test_ablation_is_of_one_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own attention is faster and rounds otherwise: whole and changed sentences must share it."""
    asked: list[Any] = []
    module = sys.modules["wherefrom.model.rerun"]
    several_numbers = module.several_numbers

    def spy(opened: Any, sentences: Any, answers: Any, of: str, **how: Any) -> Any:
        asked.append((len(sentences), how))
        return several_numbers(opened, sentences, answers, of, **how)

    monkeypatch.setattr(module, "several_numbers", spy)
    model = tiny.model()
    found = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="ablation", target=1)
    assert asked == [(len(found) + 1, {"own_attention": True})]
    exact = wherefrom.explain(TEXTS[0], tiny.model(dtype=torch.float64), TOKENIZER, method="ablation", target=1)
    assert np.abs(found.scores - exact.scores).max() <= 2e-6


# What holds for all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", SCORES)
@pytest.mark.parametrize("variant", ["bert", "albert", "gpt2", "gpt2-encoder"])
def test_a_batch_gives_what_one_sentence_gives(method: str, variant: str) -> None:
    model = tiny.model(variant, dtype=torch.float64)
    for together, text in zip(wherefrom.explain(TEXTS, model, TOKENIZER, method=method, target=1), TEXTS, strict=True):
        alone = wherefrom.explain(text, model, TOKENIZER, method=method, target=1)
        largest = max(1e-6, np.abs(alone.scores).max())
        assert np.abs(together.scores - alone.scores).max() <= 1e-5 * largest
        assert together.scores.shape == (len(alone),)


@pytest.mark.parametrize("method", SCORES)
def test_every_class_at_once(method: str) -> None:
    model = tiny.model(dtype=torch.float64)
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    opened = wherefrom.open_model(model, TOKENIZER)
    wherefrom.capture(TEXTS[0], opened)
    passes.clear()  # the proof takes passes of its own, and the first use one
    every = wherefrom.explain(TEXTS[0], opened, method=method, target="all")
    assert list(every) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    if next(each for each in wherefrom.methods() if each.name == method).gradient:
        assert len(passes) <= 2  # the classes share the captured one (LRP notes the head's inputs in another)
    for target, (label, found) in enumerate(every.items()):
        alone = wherefrom.explain(TEXTS[0], model, TOKENIZER, method=method, target=target)
        assert found.target.label == label
        assert np.allclose(found.scores, alone.scores, atol=1e-10)


@pytest.mark.parametrize("method", ["attcat", "cat", "gradient-x-input", "saliency"])
def test_an_answer_is_the_sum_of_its_edges(method: str) -> None:
    model = tiny.model(task="question-answering", dtype=torch.float64)
    every = wherefrom.explain(("is it good ?", "the film is good"), model, TOKENIZER, method=method, target="all")
    start, end, both = every.values()
    assert [each.target.kind for each in every.values()] == ["start", "end", "answer"]
    if method != "saliency":  # linear in the explained number
        assert np.allclose(start.scores + end.scores, both.scores, atol=1e-10)


@pytest.mark.parametrize("task", ["masked-lm", "causal-lm", "token-classification"])
@pytest.mark.parametrize("method", SCORES)
def test_every_kind_of_head_is_explained(method: str, task: str) -> None:
    model = tiny.model("gpt2" if task == "causal-lm" else "bert", task)
    found = wherefrom.explain("the good [MASK] film", model, TOKENIZER, method=method, position=3, target=1)
    assert found.scores.any() or method == "attention-gradcam"  # which may clamp everything away
    assert found.position == 3


def test_a_foil_is_a_difference() -> None:
    model = tiny.model(dtype=torch.float64)
    a, b = (wherefrom.explain(TEXTS[0], model, TOKENIZER, method="attcat", target=t).scores for t in (2, 0))
    assert np.allclose(wherefrom.explain(TEXTS[0], model, TOKENIZER, method="attcat", target=2, foil=0).scores, a - b)


def test_attcat_joined_by_rollout_is_the_product_of_layers() -> None:
    model = tiny.model(dtype=torch.float64)
    found = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="attcat", join="rollout", target=1)
    cat = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="cat", target=1).layer_scores
    maps = wherefrom.explain(TEXTS[0], model, TOKENIZER, method="attention").maps * cat[:, None]
    assert np.allclose(found.scores, (maps[2] @ maps[1] @ maps[0]).mean(0))


@pytest.mark.parametrize("method", SCORES)
def test_nothing_is_left_on_the_model(method: str) -> None:
    model = tiny.model()
    for p in model.parameters():
        p.requires_grad_(False)  # frozen models have gradients too
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    wherefrom.explain(TEXTS[0], model, TOKENIZER, method=method)
    assert all(p.grad is None and not p.requires_grad for p in model.parameters())
    assert hooks == [
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()
    ]
    assert model.config._attn_implementation == "sdpa"
    assert not any(m.training or "forward" in vars(m) for m in model.modules())


@pytest.mark.parametrize("method", SCORES)
def test_a_bare_encoder_has_nothing_to_explain(method: str) -> None:
    needs_a_head = method in ("partial-lrp", "transformer-attribution", "full-lrp", "decompx", "alti-logit")
    told = "not defined on BertModel .* has no head" if needs_a_head else "no number to explain"
    with pytest.raises(wherefrom.WherefromError, match=told):
        wherefrom.explain("the film", tiny.model(task="encoder"), TOKENIZER, method=method)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("saliency", {"norm": "l3"}, "'saliency' cannot have norm='l3'; expected 'l2', 'l1' or 'sum'"),
        ("saliency", {"at": "pixels"}, "at='pixels'; expected 'embeddings' or 'word'"),
        (
            "saliency",
            {"of": "loss"},
            "of='loss'; expected 'auto', 'logit', 'target-logit', 'log-probability' or 'probability'",
        ),
        ("attcat", {"join": "product"}, "join='product'; expected 'sum' or 'rollout'"),
        ("cat", {"at": "middle"}, "expected 'input' or 'output'"),
        (
            "ablation",
            {"by": "noise"},
            "by='noise'; expected 'auto', 'unknown', 'mask', 'pad', 'delete', 'attention', 'mean', 'black' or",
        ),
        ("ablation", {"by": 99}, "no token to blank out"),
        ("ablation", {"unit": "letter"}, "expected 'token' or 'word'"),
        ("ablation", {"over": "pair"}, "needs a foil"),
        ("ablation", {"over": "some"}, "over='some'; expected 'auto'"),
        ("IG", {"n_steps": 0}, "n_steps=0; expected a whole number from 1"),
        ("IG", {"norm": "l3"}, "'IG' cannot have norm='l3'"),
        ("IG", {"layer": 3}, "expected a block from 0 to 2"),
        ("IG", {"baseline": "white"}, "baseline='white'; expected 'auto', 'mask', 'pad'"),
        ("IG", {"baseline": [5]}, "1 tokens in baseline"),
        (
            "deeplift",
            {"baseline": "zero"},
            "expected 'auto', 'mask', 'pad', 'unknown', 'mean', 'black' or 'blur' (of a p",
        ),
        ("attcat", {"aggregate": "rollout"}, "nothing to aggregate"),
        ("attcat", {"layers": (0, 1)}, "no layer maps"),
        ("ablation-pairs", {"layers": (0, 1)}, "no layer maps"),
        ("ablation-pairs", {"aggregate": "rollout"}, "gives one map of pairs: there is nothing to aggregate"),
    ],
)
def test_wrong_options_are_refused(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(wherefrom.WherefromError, match=re.escape(message)):
        wherefrom.explain("the film", tiny.model(), TOKENIZER, method=method, **options)


def test_without_a_token_to_stand_in_baselines_and_ablation_are_refused() -> None:
    with pytest.raises(
        wherefrom.WherefromError, match="has no mask or pad or unknown token for a baseline, as no tok"
    ) as no:
        wherefrom.explain([5, 6, 7], tiny.model(), method="IG")
    assert "pass baseline= 'zero', a token id or" in str(no.value)
    with pytest.raises(wherefrom.WherefromError, match="pass baseline= a token id or a list"):  # it refuses "zero"
        wherefrom.explain([5, 6, 7], tiny.model(), method="deeplift")
    assert abs(wherefrom.explain([5, 6, 7], tiny.model(dtype=torch.float64), method="IG", baseline="zero").delta) < 1e-4
    with pytest.raises(wherefrom.WherefromError, match="no token to blank out by 'unknown'"):
        wherefrom.explain([5, 6, 7], tiny.model(), method="ablation(by=unknown)")
