"""Decoders against golden numbers: the authors' own code, and an independent oracle.

tests/fixtures/golden-2/README.md says which file is whose and how near. The models are float64, and so is all that is
computed of them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import golden
import wherefrom


def has_file(case: str, file: str) -> bool:
    return (golden.case_folder(golden.DECODERS, case) / f"{file}.npz").exists()


def arrays(case: str, file: str) -> Any:
    return golden.load_arrays(golden.DECODERS, case, file)


def having(file: str = "inputs", array: str | None = None) -> pytest.MarkDecorator:
    """Parametrize a test by the cases that have a file, and an array in it."""
    names = [case for case in golden.case_folders(golden.DECODERS) if has_file(case, file)]
    if array is not None:
        names = [case for case in names if array in arrays(case, file)]
    assert names, f"no decoder has {file}.npz with {array}"
    return pytest.mark.parametrize("case", names)


cases = having()
MAPS = {  # the oracle's name -> ours
    "maps/norm": "norm",
    "maps/norm_residual": "norm-residual",
    "maps/norm_residual_ln": "norm-residual-ln",
    "maps/globenc": "globenc",
    "maps/alti": "alti",
    "maps/alti_ln": "alti(at=norm)",
    "maps/alti_l2": "alti(metric=l2)",
    "value_zeroing/cosine": "value-zeroing",
    "value_zeroing/euclidean": "value-zeroing(metric=euclidean)",
}


@functools.lru_cache(maxsize=2)
def model(case: str) -> Any:
    # Before 5.21 the default attention of Gemma 2 leaves its soft-cap out: wherefrom refuses that and asks for "eager".
    old = tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 21)
    how = {"attn_implementation": "eager"} if old and case.startswith("gemma2") else {}
    folder = golden.case_folder(golden.DECODERS, case) / "model"
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, **how)


@functools.lru_cache(maxsize=2)
def opened(case: str) -> wherefrom.Model:
    return wherefrom.open_model(model(case))


def sentence(case: str, number: int) -> tuple[list[int], int]:
    inputs = arrays(case, "inputs")
    return inputs[f"ids{number}"].tolist(), int(inputs[f"target{number}"])


def apart(ours: Any, theirs: Any) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@having("pass")
def test_the_pass_is_that_of_the_formulas(case: str) -> None:
    for number in (0, 1):
        trace = wherefrom.capture(sentence(case, number)[0], model(case))
        expected = arrays(case, "pass")
        assert apart(trace.output.logits[0].numpy(), expected[f"s{number}/logits"]) < 1e-11
        attention = np.stack([layer.attention[0].numpy() for layer in trace.layers])
        assert apart(attention, expected[f"s{number}/attention"]) < 1e-11


@cases
def test_layer_maps_are_the_oracles(case: str) -> None:
    for number in (0, 1):
        found = wherefrom.compare(sentence(case, number)[0], model(case), methods=list(MAPS.values()), aggregate=None)
        for name, method in MAPS.items():
            expected = arrays(case, "oracle")[f"s{number}/{name}"]
            assert apart(found[method].maps, expected) < 1e-10, (number, name)


@cases
def test_gradient_methods_are_the_oracles(case: str) -> None:
    for number in (0, 1):
        ids, target = sentence(case, number)
        theirs = {
            name: arrays(case, "oracle")[f"s{number}/gradients/target/{name}"] for name in ("attcat", "cat_layers")
        }
        found = wherefrom.compare(ids, model(case), methods=["attcat", "cat"], target=target)
        assert apart(found["attcat"].scores, theirs["attcat"]) < 1e-10
        assert apart(found["cat"].layer_scores, theirs["cat_layers"]) < 1e-10
        own = arrays(case, "oracle")[f"s{number}/gradients/target/grad_x_input_embeddings"]
        assert apart(wherefrom.explain(ids, model(case), method="gradient-x-input", target=target).scores, own) < 1e-10


RELEVANCE = {"attnlrp": "attn-lrp", "cplrp": "cp-lrp"}  # the golden name -> ours


def asked(case: str, number: int) -> dict[str, dict[str, Any]]:
    """What the golden numbers explain: the predicted token, another one, and the one against the other."""
    target, foil = (int(arrays(case, "inputs")[f"{name}{number}"]) for name in ("target", "foil"))
    return {"target": {"target": target}, "foil": {"target": foil}, "contrast": {"target": target, "foil": foil}}


@cases
def test_relevance_is_the_oracles(case: str) -> None:
    for number in (0, 1):
        for what, towards in asked(case, number).items():
            names = [f"{method}(at=word)" for method in RELEVANCE.values()]
            found = wherefrom.compare(sentence(case, number)[0], opened(case), methods=names, **towards)
            for name, method in RELEVANCE.items():
                expected = arrays(case, "oracle")
                ours, where = found[f"{method}(at=word)"], f"s{number}/{name}/{what}"
                assert apart(ours.scores, expected[f"{where}/relevance"]) < 1e-11, where
                assert apart(ours.layer_scores, expected[f"{where}/layers"]) < 1e-11, where
                part = expected[f"{where}/relevance"].sum() / expected[f"{where}/output"]
                assert ours.arrived == pytest.approx(float(part), rel=1e-9)


@having("lxt")
def test_relevance_is_that_of_lxt(case: str) -> None:
    """LXT divides activations by z + 1e-10."""
    theirs = arrays(case, "lxt")
    for number in (0, 1):
        for what, towards in asked(case, number).items():
            for name, method in RELEVANCE.items():
                found = wherefrom.explain(sentence(case, number)[0], opened(case), method=method, at="word", **towards)
                assert apart(found.scores, theirs[f"{name}/s{number}/{what}/relevance"]) < 1e-7
                assert apart(found.layer_scores, theirs[f"{name}/s{number}/{what}/layers"]) < 1e-7


@cases
def test_generic_attention_is_the_oracles(case: str) -> None:
    for number in (0, 1):
        for what in ("target", "contrast"):
            ids, towards = sentence(case, number)[0], asked(case, number)[what]
            found = wherefrom.explain(ids, opened(case), method="generic-attention", **towards)
            expected = arrays(case, "oracle")[f"s{number}/gradients/{what}/generic_attention"]
            assert apart(found.aggregated[-1], expected) < 1e-11


@having("alti_logit")
def test_alti_is_the_authors_for_decoders(case: str) -> None:
    """Their code adds 1e-6 to every component of a difference."""
    for number in (0, 1):
        found = wherefrom.explain(sentence(case, number)[0], model(case), method="alti")
        theirs = arrays(case, "alti_logit")
        assert apart(found.maps, theirs[f"s{number}/alti_layer"]) < 1e-5
        assert apart(found.aggregated, theirs[f"s{number}/alti_rollout"]) < 1e-5


@cases
def test_norms_through_the_ffn_are_the_oracles(case: str) -> None:
    for number in (0, 1):
        found = wherefrom.explain(sentence(case, number)[0], model(case), method="norm-ffn")
        assert apart(found.maps, arrays(case, "oracle")[f"s{number}/maps/ffn_ig"]) < 1e-12


@cases
def test_decompx_without_biases_is_cp_lrp(case: str) -> None:
    """Biases dropped everywhere and the gate a constant: what arrives at the input of each block."""
    options: dict[str, Any] = {"bias": "none", "gate": "gate", "value_bias": "spread"}
    for number in (0, 1):
        ids, target = sentence(case, number)
        found = wherefrom.explain(ids, model(case), method="decompx", target=target, **options)
        assert apart(found.layer_scores, arrays(case, "oracle")[f"s{number}/cplrp/target/layers"]) < 1e-12


@having("value_zeroing")
def test_value_zeroing_is_the_authors(case: str) -> None:
    theirs = arrays(case, "value_zeroing")
    for number in (0, 1):
        found = wherefrom.explain(sentence(case, number)[0], model(case), method="value-zeroing")
        assert apart(found.maps, theirs[f"s{number}/value_zeroing"]) < 1e-11


@having("alti_logit")
def test_alti_logit_is_the_authors(case: str) -> None:
    """What is followed through maps misses theirs by their 1e-6 in every component; what is not is equal."""
    theirs = arrays(case, "alti_logit")
    for number in (0, 1):
        ids, target = sentence(case, number)
        foil = int(arrays(case, "inputs")[f"foil{number}"])
        found = wherefrom.explain(ids, model(case), method="alti-logit", target=target)
        assert apart(found.layer_scores, theirs[f"s{number}/logit_alti"][0]) < 1e-5
        plain = wherefrom.explain(ids, model(case), method="alti-logit(mixing=none)", target=target)
        assert apart(plain.layer_scores, theirs[f"s{number}/logit_attn"][0]) < 1e-12
        contrast = wherefrom.explain(ids, model(case), method="alti-logit", target=target, foil=foil)
        assert apart(contrast.scores, theirs[f"s{number}/contrastive"]) < 1e-5
        unmixed = wherefrom.explain(ids, model(case), method="alti-logit(mixing=none)", target=target, foil=foil)
        assert apart(unmixed.scores, theirs[f"s{number}/contrastive_no_mixing"]) < 1e-11


@having("oracle", "s0/alti_logit/logit_alti")
def test_parts_of_the_logit_are_the_oracles(case: str) -> None:
    for number in (0, 1):
        ids, target = sentence(case, number)
        parts = wherefrom.explain(ids, model(case), method="alti-logit", target=target)
        assert apart(parts.layer_scores, arrays(case, "oracle")[f"s{number}/alti_logit/logit_alti"][0]) < 1e-10


@having("oracle", "s1/info_flow/attention")
def test_information_flow_is_the_oracles(case: str) -> None:
    oracle = arrays(case, "oracle")
    for number in (each for each in (0, 1) if f"s{each}/info_flow/attention" in oracle):
        ids = sentence(case, number)[0]
        found = wherefrom.explain(ids, model(case), method="information-flow", aggregate=None)
        seen = arrays(case, "pass")[f"s{number}/attention"].max(1) > 0
        by_head = oracle[f"s{number}/info_flow/attention"] * seen[..., None]  # it floors the unseen, too
        edges = by_head.sum(-1) + np.eye(len(ids)) * oracle[f"s{number}/info_flow/attention_residual"][:, :, None]
        assert apart(found.maps, edges / edges.sum(-1, keepdims=True)) < 1e-10


@having("oracle", "s1/info_flow/ffn")
def test_what_the_ffn_brings_is_the_oracles_and_the_authors(case: str) -> None:
    """Above no threshold, and above the authors' 0.04; where values have no bias, with attention's edges."""
    oracle = arrays(case, "oracle")
    for number in (each for each in (0, 1) if f"s{each}/info_flow/ffn" in oracle):
        whole = wherefrom.routes(sentence(case, number)[0], model(case), threshold=0.0)
        for found, name in ((whole.ffn, "ffn"), (whole.ffn_residual, "ffn_residual")):
            assert apart(found, oracle[f"s{number}/info_flow/{name}"]) < 1e-10
            if has_file(case, "info_flow"):
                assert apart(found, arrays(case, "info_flow")[f"s{number}/{name}"]) < 3e-5
        if case in ("llama_a", "mistral_a", "qwen3_a"):
            flow = wherefrom.routes(sentence(case, number)[0], model(case)).flow
            assert apart(flow.maps, arrays(case, "info_flow")[f"s{number}/edges_threshold0.04"]) < 3e-5


@having("info_flow")
def test_information_flow_is_the_authors(case: str) -> None:
    """Their 1e-6 in every component, and 1e-5 for tokens that are not seen."""
    theirs = arrays(case, "info_flow")
    for number in (0, 1):
        ids = sentence(case, number)[0]
        by_head = theirs[f"s{number}/attention_bias_once"]
        edges = by_head.sum(-1) + np.eye(len(ids)) * theirs[f"s{number}/attention_residual_bias_once"][:, :, None]
        found = wherefrom.explain(ids, model(case), method="information-flow", aggregate=None)
        assert apart(found.maps, edges) < 3e-5
