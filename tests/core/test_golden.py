"""The authors' own numbers: raw attention, rollout and logits on every golden case."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import golden
import wherefrom

CASES = golden.cases().values()
TOLERANCE = 1e-6


def close(found: golden.Array, expected: golden.Array, tolerance: float = TOLERANCE) -> bool:
    """Maps are at most 1; logits are larger and their float32 figures carry seven digits."""
    largest = max(1.0, float(np.abs(expected).max()))
    return found.shape == expected.shape and float(np.abs(found - expected).max()) <= tolerance * largest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_logits_equal_the_golden_numbers(case: golden.Golden, dtype: torch.dtype) -> None:
    model = case.model(dtype)
    # Two machines' float32 differ by more than either differs from float64.
    tolerance = TOLERANCE if dtype == torch.float64 else 2 * TOLERANCE
    for sentence in case.sentences("logits_tf5"):
        logits = wherefrom.capture(case.ids(sentence), model).output.logits
        assert close(logits.numpy(), case["logits_tf5", f"{sentence}_logits"], tolerance)
    batch = {name: case["inputs", f"batch_{name}"] for name in ("input_ids", "attention_mask")}
    trace = wherefrom.capture(batch, model)
    expected = case["logits_tf5", "batch_logits"]
    if expected.ndim == 3:  # a masked language model: padded positions mean nothing
        expected, real = expected[trace.mask], trace.output.logits[trace.mask]
        assert close(real.numpy(), expected, tolerance)
    else:
        assert close(trace.output.logits.numpy(), expected, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", golden.having("globenc"), ids=lambda case: case.name)
def test_globenc_weights_and_their_rollouts(case: golden.Golden, dtype: torch.dtype) -> None:
    model = case.model(dtype)
    for sentence in case.sentences("globenc"):
        for symbol in ("W", "W_FixedRes"):
            found = wherefrom.explain(case.ids(sentence), model, method=symbol)
            assert found.aggregate == "rollout"
            assert close(found.maps, case["globenc", f"{sentence}_{symbol}"])
            assert close(found.aggregated, case["globenc", f"{sentence}_{symbol}_rollout"])
            assert (found.scores == found.aggregated[-1, 0]).all()


@pytest.mark.parametrize("case", golden.having("attention_flow"), ids=lambda case: case.name)
def test_abnars_raw_attention_and_rollout(case: golden.Golden) -> None:
    model = case.model()
    for sentence in case.sentences("attention_flow"):
        rollout = wherefrom.explain(case.ids(sentence), model, method="attention-rollout")
        raw = wherefrom.explain(case.ids(sentence), model, method="raw-attention")
        plain = wherefrom.explain(case.ids(sentence), model, method="attention", aggregate="rollout")
        assert close(raw.maps, case["attention_flow", f"{sentence}_raw"])
        assert raw.aggregated is None
        assert (raw.scores == raw.maps[-1, raw.position]).all()
        assert close(rollout.aggregated, case["attention_flow", f"{sentence}_rollout"])
        assert close(plain.aggregated, case["attention_flow", f"{sentence}_rollout_nores"])


@pytest.mark.parametrize("case", golden.having("globenc"), ids=lambda case: case.name)
def test_a_padded_batch_gives_what_single_sentences_give(case: golden.Golden) -> None:
    batch = {name: case["inputs", f"batch_{name}"] for name in ("input_ids", "attention_mask")}
    found = wherefrom.explain(batch, case.model(), method="attention-rollout")
    lengths = batch["attention_mask"].sum(1)
    assert [len(each) for each in found] == lengths.tolist()
    for row, which in enumerate(case["inputs", "batch_order"]):
        key = ("globenc", f"sent{which}_W_FixedRes_rollout")
        if key in case:  # the trimmed fixtures hold one sentence of the batch
            assert close(found[row].aggregated, case[key])


@pytest.mark.parametrize("case", golden.having("attcat"), ids=lambda case: case.name)
def test_attcats_raw_attention_with_and_without_their_mask(case: golden.Golden) -> None:
    """Their notebooks hide [CLS] and [SEP] from attention; passing that mask gives their numbers."""
    model = case.model()
    for sentence in case.sentences("attcat"):
        ids = case.ids(sentence)
        masks = {"full": [1] * len(ids), "special0": [0, *[1] * (len(ids) - 2), 0]}
        for name, mask in masks.items():
            encoding = {"input_ids": ids, "attention_mask": mask}
            for symbol, method in (("RawAtt", "RawAtt"), ("Rollout", "rollout")):
                expected = case["attcat", f"{sentence}_{name}_{symbol}"]
                scores = wherefrom.explain(encoding, model, method=method).scores.copy()
                scores[0] = 0  # theirs drops what [CLS] gives itself
                assert close(scores, expected)


def test_the_fixtures_are_small_and_say_where_they_come_from() -> None:
    folders = [golden.FIXTURES / name for name in ("golden", "golden-2")]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 12_000_000
    assert "samiraabnar/attention_flow" in (folders[0] / "README.md").read_text()
    origins = (folders[1] / "README.md").read_text()
    for file in folders[1].rglob("*.npz"):
        assert f"`{file.name}`" in origins, file
