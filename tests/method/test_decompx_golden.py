"""DecompX against the authors' own arrays, and a decoder against an independent oracle.

The authors' code adds 1e-12 to what it divides by. With that put back, nothing but rounding is left between theirs and
ours; without it, what it does to an activation whose input is near zero.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import golden
import wherefrom
from wherefrom.method import decomposition, frozen_block

AUTHORS = ("bert_dx", "roberta_dx")
VARIANTS: dict[str, dict[str, Any]] = {  # the authors' options, as their index names them -> ours
    "default": {},
    "nobias": {"bias": "none"},
    "bias_abssim": {"bias": "abssim"},
    "bias_norm": {"bias": "norm"},
    "bias_equal": {"bias": "equal"},
    "bias_cls": {"bias": "cls"},
    "bias_dot": {"bias": "dot"},
    "bias_token": {"bias": "token"},
    "bias_token_absdot": {"bias": "token-absdot"},
    "gelu_la": {"activation": "linear", "head_activation": "linear"},
    "gelu_la_norm": {"activation": "linear", "head_activation": "linear", "bias": "norm"},
    "relu": {"activation": "relu"},
    "tanh_la": {"head_activation": "linear"},
    "noffn": {"ffn": False},
    "noln1": {"norms": "second"},
    "noln2": {"norms": "first"},
}
ROLLOUTS: dict[str, dict[str, Any]] = {
    "globenc_rollout": {"bias": "none", "ffn": False},
    "globenc_ffn_rollout": {"bias": "none"},
    "globenc_ffn_bias_rollout": {},
}


@functools.lru_cache(maxsize=2)
def model(case: str) -> Any:
    folder = golden.case_folder(golden.BEYOND, case) / "model"
    return transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64)


def arrays(case: str, file: str) -> Any:
    return golden.load_arrays(golden.BEYOND, case, file)


def sentence(case: str, number: int) -> Any:
    inputs = arrays(case, "inputs")
    n = int(inputs["attention_mask"][number].sum())
    return {name: inputs[name][number, :n].tolist() for name in ("input_ids", "token_type_ids")}


def explained(*given: Any, **options: Any) -> Any:
    return wherefrom.explain(*given, **options)


def apart(ours: Any, theirs: Any) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def of_all_classes(case: str, number: int, **options: Any) -> Any:
    found = explained(sentence(case, number), model(case), method="decompx", target="all", **options)
    return np.stack([each.scores for each in found.values()], -1)


def worst(case: str, variant: str) -> float:
    """How far scores and maps lie from the authors', as a share of the largest."""
    theirs, options, found = arrays(case, "decompx"), VARIANTS[variant], []
    maps = {name: value for name, value in options.items() if name != "head_activation"}
    if "token" in variant:  # which has a column of its own in their maps
        maps["bias"] = "none"
    for number in range(len(arrays(case, "inputs")["input_ids"])):
        if f"s{number}/{variant}/classifier" in theirs:
            n = len(sentence(case, number)["input_ids"])  # the token of biases, where there is one, comes after
            found.append(
                apart(of_all_classes(case, number, **options), theirs[f"s{number}/{variant}/classifier"][0, :n])
            )
            ours = explained(sentence(case, number), model(case), method="decompx-map", **maps).maps
            found.append(apart(ours, theirs[f"s{number}/{variant}/aggregated_norms"][:, 0, :, :n]))
    assert found
    return max(found)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", AUTHORS)
def test_scores_and_maps_are_the_authors(case: str, variant: str) -> None:
    # Signed shares divide by sums that cancel, which makes of their 1e-12 what it likes.
    assert worst(case, variant) < (5e-9 if variant == "bias_dot" else 2e-10)


@pytest.mark.parametrize("variant", ["default", "nobias", "bias_norm", "noffn"])
@pytest.mark.parametrize("case", AUTHORS)
def test_with_the_authors_epsilon_nothing_but_rounding_is_left(
    case: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ratio(function: Any, z: Tensor) -> Tensor:
        found: Tensor = function(z) / (z + 1e-12)
        return found

    monkeypatch.setattr(frozen_block, "ratio", ratio)
    monkeypatch.setattr(decomposition, "nonzero", lambda total: total + 1e-12)
    assert worst(case, variant) < 1e-13


@pytest.mark.parametrize("variant", ROLLOUTS)
@pytest.mark.parametrize("case", AUTHORS)
def test_rollouts_of_local_norms_are_the_authors(case: str, variant: str) -> None:
    found = explained(sentence(case, 0), model(case), method="decompx-local", **ROLLOUTS[variant])
    assert apart(found.aggregated, arrays(case, "decompx")[f"s0/{variant}/aggregated_norms"][:, 0]) < 2e-11


@pytest.mark.parametrize("case", AUTHORS)
def test_local_norms_are_those_of_the_authors_vectors(case: str) -> None:
    found = explained(sentence(case, 0), model(case), method="decompx-local")
    vectors = arrays(case, "decompx")["s0/local/encoder_vectors"][:, 0]
    assert apart(found.maps, np.linalg.norm(vectors, axis=-1)) < 2e-11


@pytest.mark.parametrize(("gate", "theirs"), [("half", "half"), ("gate", "constant")])
def test_a_decoder_with_a_gate_is_the_oracles(gate: str, theirs: str) -> None:
    """The oracle took norms and softmax in float32, as transformers does."""
    folder = golden.case_folder(golden.BEYOND, "llama_dx") / "model"
    llama = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    expected = arrays("llama_dx", "decompx_oracle")[f"{theirs}/next_token"][0]
    ids = arrays("llama_dx", "inputs")["input_ids"][0].tolist()
    for word in range(0, expected.shape[1], 9):
        found = explained(ids, llama, method="decompx", target=word, gate=gate)
        assert apart(found.scores, expected[:, word]) < 5e-6
        assert abs(found.delta) < 1e-10
