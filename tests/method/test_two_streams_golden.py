"""Encoders with a decoder against golden numbers: an independent oracle, and the authors' own code.

tests/fixtures/golden-2/README.md says which file is whose. The models are float64.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import golden
import wherefrom
from wherefrom import LayerTrace
from wherefrom.aggregate.rollout import rollout
from wherefrom.errors import Unsuited
from wherefrom.method import choose
from wherefrom.model import Model, Sentence
from wherefrom.model.target import EACH
from wherefrom.pipeline.resolution import Question, resolve_job
from wherefrom.pipeline.windows import run_whole
from wherefrom.result.answer import Target
from wherefrom.result.generation import Answered

CASES = ["bart_s2s", "marian_s2s", "m2m_s2s", "t5_s2s"]
# transformers has T5's norms in float32, and so had the oracle.
CLOSE = {"t5_s2s": 1e-6}


def arrays(case: str, file: str) -> Any:
    return golden.load_arrays(golden.BEYOND, case, file)


@lru_cache
def opened(case: str) -> Model:
    folder = golden.case_folder(golden.BEYOND, case) / "model"
    return wherefrom.open_model(transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64))


@lru_cache
def pair(case: str, which: int) -> Sentence:
    """A pair of the case, of which the tokens are explained that the model puts first."""
    given = arrays(case, "inputs")
    source, target = (
        given[ids][which][given[mask][which] > 0].tolist()
        for ids, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask"))
    )
    said = given["logits"][which][: len(target)].argmax(-1)
    n = len(source) + len(target)
    segments = ["source"] * len(source) + ["target"] * len(target)
    names, no = [str(i) for i in source + target], [False] * n
    return Sentence(
        source + target, names, no, [None] * n, (), unknown=no, said=tuple(said.tolist()), segments=segments
    )


def blocks(found: Any, case: str, which: int) -> dict[str, Any]:
    """The maps of each kind of step: [L, rows, columns]."""
    s, encoders = pair(case, which).segments.count("source"), len(opened(case).blocks)
    encoders -= 2 * sum(block.family.crosses for block in opened(case).blocks)
    cross = found[encoders + 1 :: 2, s:]
    return {
        "encoder": found[:encoders, :s, :s],
        "self": found[encoders::2, s:, s:],
        "cross": cross[..., :s],
        "residual": np.diagonal(cross[..., s:], axis1=1, axis2=2),
    }


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_alti_plus(case: str, which: int) -> None:
    gold = arrays(case, "s2s_oracle")
    found = wherefrom.explain(pair(case, which), opened(case), method="alti")
    name, close = f"s{which}/altiplus", {"rtol": 0, "atol": CLOSE.get(case, 1e-12)}
    ours = blocks(found.maps, case, which)
    np.testing.assert_allclose(ours["encoder"], gold[f"{name}/encoder.self_attn"], **close)
    np.testing.assert_allclose(ours["self"], gold[f"{name}/decoder.self_attn"], **close)
    cross = np.concatenate([ours["cross"], ours["residual"][..., None]], -1)
    np.testing.assert_allclose(cross, gold[f"{name}/decoder.encoder_attn"], **close)
    joint = blocks(found.aggregated, case, which)
    np.testing.assert_allclose(joint["encoder"], gold[f"{name}/rollout_encoder"], **close)
    s = pair(case, which).segments.count("source")
    total = gold[f"{name}/rollout_total"]
    np.testing.assert_allclose(found.aggregated[-2 * len(total) + 1 :: 2, s:], total, **close)


@pytest.mark.parametrize("case", [case for case in CASES if case != "t5_s2s"])
def test_attention_of_the_authors(case: str) -> None:
    """Their norm of contributions is off by their own liberties; their attention is not."""
    gold = arrays(case, "altiplus")
    for which in (0, 1):
        found = wherefrom.explain(pair(case, which), opened(case), method="attention")
        ours = blocks(found.maps, case, which)
        for mine, theirs in (
            ("encoder", "encoder.self_attn"),
            ("self", "decoder.self_attn"),
            ("cross", "decoder.encoder_attn"),
        ):
            np.testing.assert_allclose(ours[mine], gold[f"s{which}/attn_w/{theirs}"], rtol=0, atol=1e-12)


def with_their_liberties(layer: LayerTrace, order: int) -> Any:
    """The authors' map of one step: a deviation by n − 1 without ε, and 1e-6 added to each component of a distance."""
    carried = torch.einsum("hij,hje,hed->ijd", layer.attention[0], layer.value[0], layer.block.w_o)
    n = len(carried)
    parts = carried + torch.eye(n)[..., None] * layer.x[0][:, None]
    bias = layer.u[0] - parts.sum(1)  # b_O
    norm, result = layer.block.post, layer.u[0]
    if norm is not None:
        scale = layer.u[0].std(-1, keepdim=True)
        parts = norm.gamma * norm.centred(parts) / scale[:, None]
        result = parts.sum(1) + norm.gamma * norm.centred(bias) / scale + norm.beta
    near = result.norm(p=order, dim=-1, keepdim=True) - (parts - result[:, None] + 1e-6).norm(p=order, dim=-1)
    near = near.clamp(min=0)
    return (near / near.sum(-1, keepdim=True)).numpy()


@pytest.mark.parametrize("metric", ["l1", "l2"])
@pytest.mark.parametrize("case", [case for case in CASES if case != "t5_s2s"])
def test_alti_plus_of_the_authors(case: str, metric: str) -> None:
    """Their arrays, with their liberties; without norms on the stream these are of no weight, and ours are theirs."""
    gold = arrays(case, "altiplus")
    for which in (0, 1):
        sentence, order = pair(case, which), int(metric[1])
        s = sentence.segments.count("source")
        steps = []
        for layer in wherefrom.capture(sentence, opened(case)).layers:
            own = with_their_liberties(layer, order)
            whole = np.eye(len(sentence))
            if layer.step.crosses:
                own[s:, s:] *= np.eye(len(sentence) - s)  # no column of theirs but the source's and one of its own
                whole[s:] = own[s:] / own[s:].sum(-1, keepdims=True)
            else:
                rows = slice(s, None) if layer.block.family.causal else slice(s)
                whole[rows, rows] = own
            steps.append(whole)
        theirs = blocks(np.stack(steps), case, which)
        ours = blocks(wherefrom.explain(sentence, opened(case), method="alti", metric=metric).maps, case, which)
        name, near = f"s{which}/{metric}", 1e-5 if case == "m2m_s2s" else 0.02
        for mine, part in (("encoder", "encoder.self_attn"), ("self", "decoder.self_attn")):
            np.testing.assert_allclose(theirs[mine], gold[f"{name}/{part}"], rtol=0, atol=1e-12)
            np.testing.assert_allclose(ours[mine], gold[f"{name}/{part}"], rtol=0, atol=near)
        cross = gold[f"{name}/decoder.encoder_attn"]
        for found, close in ((theirs, 1e-12), (ours, near)):
            both = np.concatenate([found["cross"], found["residual"][..., None]], -1)
            np.testing.assert_allclose(both, cross, rtol=0, atol=close)
        joint = rollout(np.stack(steps))
        total = gold[f"{name}/rollout_total"]
        np.testing.assert_allclose(joint[-2 * len(total) + 1 :: 2, s:], total, rtol=0, atol=1e-12)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_value_zeroing(case: str, which: int) -> None:
    gold = arrays(case, "s2s_oracle")
    found = wherefrom.explain(pair(case, which), opened(case), method="value-zeroing", aggregate=None)
    ours = blocks(found.maps, case, which)
    for mine, theirs in (("encoder", "enc_self"), ("self", "dec_self"), ("cross", "dec_cross")):
        wanted = gold[f"s{which}/value_zeroing/{theirs}"]
        np.testing.assert_allclose(ours[mine], wanted, rtol=0, atol=CLOSE.get(case, 1e-9), err_msg=mine)


@pytest.mark.parametrize("case", CASES)
def test_generic_relevancy(case: str) -> None:
    """Row t of the source and of the prefix, of the logit of each token."""
    gold = arrays(case, "generic_oracle")
    for which in (0, 1):
        sentence = pair(case, which)
        s, chosen = sentence.segments.count("source"), choose("generic-attention(of=logit)")
        job = resolve_job(opened(case), chosen)
        each = Question(Target(EACH, 0), None, None)
        found = run_whole(opened(case), [sentence], [each], {"": job}, 1)[0][""].explanations
        rows = np.stack([explanation.scores for explanation in found])
        close = {"rtol": 0, "atol": CLOSE.get(case, 1e-9) * np.abs(rows).max()}
        np.testing.assert_allclose(rows[:, :s], gold[f"s{which}/source"], **close)
        np.testing.assert_allclose(rows[:, s:], gold[f"s{which}/prefix"], **close)


@lru_cache
def whisper() -> Model:
    return wherefrom.open_model(str(golden.case_folder(golden.BEYOND, "whisper_vz") / "model"), dtype="float64")


def heard(method: str) -> Any:
    given = arrays("whisper_vz", "inputs")
    encoding = {"input_features": given["input_features"][0], "decoder_input_ids": given["decoder_input_ids"][0]}
    return wherefrom.explain(encoding, whisper(), method=method)


def test_speech() -> None:
    """Value Zeroing of its authors, frame by frame; ALTI+ of the oracle."""
    gold = arrays("whisper_vz", "value_zeroing_asr")
    found = heard("value-zeroing")
    s, frames = found.segments.count("source"), found.maps
    assert found.tokens[:2] == ["0.00s", "0.02s"]
    close = {"rtol": 0, "atol": 1e-9}
    np.testing.assert_allclose(frames[:2, :s, :s], gold["frame_mean/vz_encoder"], **close)
    np.testing.assert_allclose(frames[2::2, s:, s:], gold["frame_mean/vz_decoder"], **close)
    np.testing.assert_allclose(frames[3::2, s:, :s], gold["frame_mean/vz_cross"], **close)
    attention = heard("attention").maps
    np.testing.assert_allclose(attention[3::2, s:, :s], gold["frame_mean/cross_attentions"].mean(1), **close)
    oracle = arrays("whisper_vz", "s2s_oracle")
    total = heard("alti").aggregated[3::2, s:]
    np.testing.assert_allclose(total, oracle["s0/altiplus/rollout_total"], **close)
    gradients = heard("gradient-x-input")
    assert gradients.scores[:s].any()
    with pytest.raises(Unsuited, match="nothing can stand in for a frame"):
        heard("ablation")


@pytest.mark.parametrize("case", ["bart_s2s", "marian_s2s", "m2m_s2s"])
def test_source_contribution_is_that_of_stopes(case: str) -> None:
    """On the authors' own rows: its mean and its least are avg_sc and min_sc."""
    rows, wanted = (arrays(case, name) for name in ("altiplus", "alti_metrics"))
    for which in (0, 1):
        total = rows[f"s{which}/l1/rollout_total"][-1]
        segments = [*pair(case, which).segments, "target"]
        scores = np.pad(total, ((0, 0), (0, 1)))
        tokens = [str(i) for i in range(len(segments))]
        whole = wherefrom.Explanation.from_scores(tokens, scores.mean(0), segments=segments)
        steps = [Answered(Target("token", 0), None, {}, 0.0) for _ in total]
        found = wherefrom.Generation(whole, scores, list(range(len(segments))), steps).source_contribution
        assert found.mean() == pytest.approx(float(wanted[f"s{which}/avg_sc"]), abs=1e-12)
        assert found.min() == pytest.approx(float(wanted[f"s{which}/min_sc"]), abs=1e-12)
