"""Every method on every family against its definition, computed by the model's own modules (oracles/direct.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import nn

import tiny
import wherefrom
from oracles.direct import MAPS, Direct, caller
from wherefrom.method import choose
from wherefrom.method.needs import undefined
from wherefrom.model import Model, open_model
from wherefrom.model.capture import rerunning
from wherefrom.model.double_casts import computing_in_double
from wherefrom.model.sentences import collate
from wherefrom.model.undo import attending_eagerly, borrowed, hook, routing_eagerly

T = TypeVar("T")
IDS = tiny.ids(5)
ENCODERS = {"bert", "modernbert", "deberta"}
HEADED = [
    "llama-biased",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "olmo2",
    "phi",
    "gpt_neox",
    "bloom",
    "gptj",
    "granite",
    "mixtral",
]
HEADED += ["gpt_oss", "opt-post-norm", "falcon-40b", *sorted(ENCODERS)]
KINDS = {  # every kind of block, attention and norm
    *(
        "bert",
        "albert",
        "gpt2",
        "llama-biased",
        "qwen3",
        "hunyuan_v1_dense",
        "gemma2",
        "gemma3_text",
        "olmo2",
        "glm4",
        "phi",
    ),
    *(
        "gpt_neox",
        "cohere2",
        "falcon-40b",
        "bloom",
        "gptj",
        "modernbert",
        "nomic_bert",
        "granite",
        "mixtral",
        "gpt_oss",
    ),
    *("deberta", "opt-post-norm", "deepseek_v3"),
}


def directly(opened: Model, trace: Any) -> dict[str, np.ndarray]:
    """Each map of the last block, by definition."""
    calls: list[tuple[Any, Any]] = []
    reads: list[Any] = []

    def enters(_module: nn.Module, args: Any, kwargs: Any) -> None:
        calls.append((args, kwargs))

    def enters_norm(_module: nn.Module, args: Any, _kwargs: Any) -> None:
        reads.append(args[0][0])

    def run() -> dict[str, np.ndarray]:
        block = opened.blocks[-1]
        hook(block.module, enters, before=True)
        if block.family.ffn.post:
            hook(block.part(block.family.ffn.post), enters_norm, before=True)
        opened.forward(collate(trace.batch.sentences, opened.pad_id))
        closing = opened.part(opened.family.closing) if opened.family.closing else None
        direct = Direct(trace.layers[-1], caller(block, *calls[-1]), reads[-1] if reads else None, closing)
        return {name: MAPS[name](direct).detach().numpy() for name in wanted(opened)}

    with torch.no_grad():
        return rerunning(opened, run)


def wanted(opened: Model) -> list[str]:
    return [name for name in MAPS if undefined(choose(name).method.needs, opened) is None]


def layouts() -> list[Any]:
    """One of each kind by default; all of them among the slow tests."""
    every = [*tiny.CONFIGS, *tiny.LAYOUTS]
    return [each if each in KINDS else pytest.param(each, marks=pytest.mark.slow) for each in every]


@pytest.mark.parametrize("layout", layouts())
def test_maps_are_their_definitions(layout: str) -> None:
    opened = open_model(tiny.model(layout, "encoder", dtype=torch.float64))
    if isinstance(opened.blocks[-1].module, nn.ModuleList):
        pytest.skip("the blocks of this model are no modules that could be run again")
    trace = wherefrom.capture(IDS, opened)
    expected = directly(opened, trace)
    ours = wherefrom.compare(IDS, opened, methods=list(expected), aggregate=None)
    for name, map_ in expected.items():
        gap = np.abs(ours[name].maps[-1] - map_).max() / np.abs(map_).max()
        assert gap <= 1e-7, name


# Towards an output: from what transformers itself gives, in its eager form ------------------------------------------


def exactly(opened: Model, body: Callable[[], T]) -> T:
    """In float64 throughout, where transformers would round; with the model's own eager attention."""

    def run() -> T:
        computing_in_double(opened.model)
        attending_eagerly(opened.model)
        if opened.family.ffn.module:
            routing_eagerly(opened.model)
        return body()

    return borrowed(run)


def towards(opened: Model, target: int) -> dict[str, np.ndarray]:
    """Scores of one token's logit, or of a class: the formulas over hidden states, attention weights and gradients."""
    output = opened.model(torch.tensor([IDS]), output_hidden_states=True, output_attentions=True)
    y = output.logits[0, -1, target] if output.logits.ndim == 3 else output.logits[0, target]
    hidden, attention = output.hidden_states[: opened.depth], output.attentions
    gradients = torch.autograd.grad(y, [*hidden, *attention])
    to_hidden, to_attention = gradients[: opened.depth], gradients[opened.depth :]
    cat = [(g * h).sum(-1)[0] for g, h in zip(to_hidden, hidden, strict=True)]
    received = [a[0].mean((0, 1)) for a in attention]
    graded = [(a * g.clamp(min=0))[0].mean((0, 1)) for a, g in zip(attention, to_attention, strict=True)]
    found = {
        "cat": sum(cat),
        "attcat": sum(c * r for c, r in zip(cat, received, strict=True)),
        "attention-gradients": sum(graded) / len(graded),
        "saliency": to_hidden[0][0].norm(dim=-1),
        "gradient-x-input": cat[0],
    }
    return {name: scores.detach().numpy() for name, scores in found.items()}


def replaced(opened: Model, target: int, by: int) -> np.ndarray:
    """Ablation: the probability that is lost with one token replaced."""

    def probability(ids: list[int]) -> float:
        logits = opened.model(torch.tensor([ids])).logits[0]
        return float((logits[-1] if logits.ndim == 2 else logits).softmax(-1)[target])

    whole = probability(IDS)
    return np.array([whole - probability([*IDS[:i], by, *IDS[i + 1 :]]) for i in range(len(IDS))])


def integrated(opened: Model, target: int, base: int, steps: int = 3) -> np.ndarray:
    """Integrated gradients by Gauss and Legendre, from the same sentence with one token everywhere."""
    e, e0 = (opened.words(torch.tensor([ids])).detach() for ids in (IDS, [base] * len(IDS)))
    total = torch.zeros_like(e)
    for point, weight in zip(*np.polynomial.legendre.leggauss(steps), strict=True):
        at = (e0 + (point + 1) / 2 * (e - e0)).requires_grad_()
        handle = opened.words.register_forward_hook(lambda *_, at=at: at)
        y = opened.model(torch.tensor([IDS])).logits[0, -1, target]
        handle.remove()
        total += weight / 2 * torch.autograd.grad(y, at)[0]
    return ((e - e0) * total).sum(-1)[0].numpy()


@pytest.mark.filterwarnings("ignore::wherefrom.WherefromWarning")
@pytest.mark.parametrize("layout", HEADED)
def test_scores_are_their_definitions(layout: str) -> None:
    task = "classification" if layout in ENCODERS else "causal-lm"
    opened = open_model(
        tiny.model(layout, task, dtype=torch.float64, **({"pad_token_id": 0} if task != "causal-lm" else {}))
    )
    expected = exactly(opened, lambda: towards(opened, 2))
    with torch.no_grad():
        expected["ablation(by=7)"] = exactly(opened, lambda: replaced(opened, 2, by=7))
    if not opened.family.embeddings:  # elsewhere the way leads from and to what the embedding module makes of words
        name = "integrated-gradients(n_steps=3, baseline=7)"
        expected[name] = exactly(opened, lambda: integrated(opened, 2, base=7))
    ours = wherefrom.compare(IDS, opened, methods=list(expected), target=2)
    for name, scores in expected.items():
        assert np.abs(ours[name].scores - scores).max() <= 1e-7 * np.abs(scores).max(), name
    rolled = wherefrom.explain(IDS, opened, method="attention-rollout").aggregated[-1]
    joint = np.eye(len(IDS))
    for layer in wherefrom.capture(IDS, opened).layers:
        joint = (0.5 * layer.attention[0].mean(0).detach().numpy() + 0.5 * np.eye(len(IDS))) @ joint
    np.testing.assert_allclose(rolled, joint, atol=1e-9)
