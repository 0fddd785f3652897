"""Sentence embeddings as outputs: similarity to another text and single dimensions, against the plain model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.errors import InvalidTarget, NotDefined, WherefromError

A, B, C = "the cat was not very good", "a deep and meaningful film", "the keys to the cabinets"
POOLED = {"mean": lambda h: h.mean(0), "first": lambda h: h[0], "last": lambda h: h[-1]}
MODELS: dict[str, Any] = {}


def model(variant: str = "bert") -> Any:
    if variant not in MODELS:
        size = {} if variant == "gpt2" else {"num_hidden_layers": 2}
        MODELS[variant] = tiny.model(variant, "encoder", dtype=torch.float64, **size)
    return MODELS[variant]


def embedded(variant: str, text: str, pooling: str, **inputs: Any) -> torch.Tensor:
    """By the plain model."""
    given = tiny.tokenizer()(text, return_tensors="pt")
    given.pop("token_type_ids" if variant in ("llama", "modernbert") else "", None)
    return POOLED[pooling](model(variant)(**(inputs or given)).last_hidden_state[0])


def cosine(variant: str, text: str, other: str, pooling: str) -> float:
    return float(cosine_similarity(embedded(variant, text, pooling), embedded(variant, other, pooling), dim=0))


def explain(text: Any = A, variant: str = "bert", **asked: Any) -> Any:
    return wherefrom.explain(text, model(variant), tiny.tokenizer(), **{"target": wherefrom.similarity(B), **asked})


@pytest.mark.parametrize("pooling", POOLED)
@pytest.mark.parametrize("variant", ["bert", "llama", "modernbert"])
def test_the_number_is_the_cosine_of_two_embeddings(variant: str, pooling: str) -> None:
    own = cosine(variant, A, B, pooling), cosine(variant, A, C, pooling)
    found = explain(variant=variant, position=pooling, method="gradient-x-input")
    assert float(found.prediction) == pytest.approx(own[0], abs=1e-4)
    found = explain(variant=variant, position=pooling, method="integrated-gradients", foil=C)
    assert float(found.prediction) == pytest.approx(own[0] - own[1], abs=1e-4)
    assert found.explained == f"similarity to '{B}' rather than to '{C}'"
    assert (found.position is None) == (pooling == "mean")


@pytest.mark.parametrize("pooling", POOLED)
def test_gradients_are_those_of_the_cosine(pooling: str) -> None:
    plain = model()
    ids = tiny.tokenizer()(A, return_tensors="pt")["input_ids"]
    words = plain.get_input_embeddings()(ids).detach().requires_grad_()
    e = embedded("bert", A, pooling, inputs_embeds=words)
    number = cosine_similarity(e, embedded("bert", B, pooling).detach(), dim=0)
    (gradient,) = torch.autograd.grad(number, words)
    found = explain(position=pooling, method="saliency", at="word")
    np.testing.assert_allclose(found.scores, gradient[0].norm(dim=-1), rtol=1e-6)


def test_ablation_is_the_drop_of_the_cosine() -> None:
    found = explain(position="mean", method="ablation", by="mask")
    ids = tiny.tokenizer()(A, return_tensors="pt")["input_ids"]
    mask = tiny.tokenizer().mask_token_id
    for place in (1, 3):
        without = ids.clone()
        without[0, place] = mask
        given = cosine_similarity(embedded("bert", A, "mean", input_ids=without), embedded("bert", B, "mean"), dim=0)
        assert found.scores[place] == pytest.approx(cosine("bert", A, B, "mean") - float(given), abs=1e-9)


def test_what_adds_up_adds_up_to_the_change_or_to_the_cosine() -> None:
    found = explain(position="mean", method="integrated-gradients", tolerance=1e-4)
    blank = " ".join(["[MASK]"] * (len(found.tokens) - 2))
    change = cosine("bert", A, B, "mean") - cosine("bert", blank, B, "mean")
    assert found.scores.sum() == pytest.approx(change, rel=1e-3)
    assert explain(position="mean", method="deeplift").scores.sum() == pytest.approx(change, rel=1e-2)


@pytest.mark.parametrize("method", ["gradient-x-input", "attcat", "ablation", "integrated-gradients", "attn-lrp"])
def test_a_batch_is_its_texts_and_exchanging_target_and_foil_changes_signs(method: str) -> None:
    asked = {"position": "mean", "method": method, "foil": wherefrom.similarity(C)}
    batch = explain([A, "a cat"], **asked)
    for text, each in zip((A, "a cat"), batch, strict=True):
        alone = explain(text, **asked)
        np.testing.assert_allclose(each.scores, alone.scores, atol=1e-6)
        turned = explain(text, **{**asked, "target": wherefrom.similarity(C), "foil": B})
        np.testing.assert_allclose(turned.scores, -alone.scores, atol=1e-6)


def test_a_text_of_its_own_for_each_input() -> None:
    both = explain([A, A], target=[wherefrom.similarity(B), wherefrom.similarity(C)], method="attcat")
    for target, found in zip((B, C), both, strict=True):
        np.testing.assert_allclose(
            found.scores, explain(target=wherefrom.similarity(target), method="attcat").scores, atol=1e-9
        )


def test_a_dimension_of_the_embedding() -> None:
    found = explain(target=7, foil=2, position="mean", method="gradient-x-input")
    e = embedded("bert", A, "mean")
    assert found.explained == "dimension 7 rather than '2'"
    assert float(found.prediction) == pytest.approx(float(e[7] - e[2]), rel=1e-3)


def test_without_a_method_the_similarity_is_explained_and_written_and_read(tmp_path: Path) -> None:
    found = explain(position="mean")
    assert found.target.kind == "similarity"
    found.save(tmp_path / "it.json")
    again = wherefrom.Explanation.load(tmp_path / "it.json")
    assert again.explained == found.explained
    assert again.arguments["target"] == f"similarity({B})"
    repeated = wherefrom.explain(model=model(), tokenizer=tiny.tokenizer(), **again.arguments)
    np.testing.assert_allclose(repeated.scores, found.scores)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            {"target": "something"},
            r"target='something' is none of its outputs. Expected the similarity to another text",
        ),
        ({"target": 24}, "a dimension from 0 to 23"),
        ({"foil": B}, "the same text"),
        ({"position": 3}, "position= is 'first', 'last' or 'mean' here"),
        ({"target": "all"}, "target='all' is for classifiers"),
        ({"method": "alti"}, "alti says what a representation is made of"),
        ({"target": "similarity()"}, "is none of its outputs"),
    ],
)
def test_what_cannot_be_asked_is_said(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidTarget, match=says):
        explain(**{"method": "attcat", **asked})


def test_relevance_that_starts_at_a_linear_layer_is_refused() -> None:
    for method in ("full-lrp", "partial-lrp", "transformer-attribution", "decompx"):
        with pytest.raises(NotDefined, match="it needs an output of a linear layer, and this model has no head"):
            explain(method=method)
    with pytest.raises(WherefromError, match="similarity to None; expected a text"):
        wherefrom.similarity(None)  # type: ignore[arg-type]


def test_on_the_command_line(tmp_path: Path) -> None:
    model().float().save_pretrained(tmp_path)
    model().double()
    tiny.tokenizer().save_pretrained(tmp_path)
    asked = ["explain", A, "--model", str(tmp_path), "--position", "mean", "--method", "attcat"]
    said = [
        CliRunner().invoke(app, [*asked, *more], catch_exceptions=False).output
        for more in (["--target", f"similarity({B})"], ["--similar-to", B])
    ]
    assert all(f"similarity to '{B}'" in " ".join(each.split()) for each in said)
    with pytest.raises(WherefromError, match="leave --target out"):
        CliRunner().invoke(app, [*asked, "--target", "7", "--similar-to", B], catch_exceptions=False)


# Embedders of sentence-transformers -----------------------------------------------------------------------


def stand_in(name: str, base: type[nn.Module] = nn.Module, **more: Any) -> Any:
    """A class as that package has it, without the package."""
    return type(name, (base,), {"__module__": "sentence_transformers.models", **more})


def embedder(pooling_mode: Any = "mean", prompt: str | None = None) -> Any:
    encoder = stand_in("Transformer")()
    encoder.auto_model = tiny.model("bert", "encoder", num_hidden_layers=2)
    pooling, dense = stand_in("Pooling")(), stand_in("Dense", forward=lambda self, given: densely(self, given))()
    pooling.pooling_mode = pooling_mode
    torch.manual_seed(0)
    dense.linear = nn.Linear(24, 8)
    found = stand_in("SentenceTransformer", nn.Sequential)(encoder, pooling, dense)
    found.tokenizer, found.default_prompt_name = tiny.tokenizer(), prompt
    return found


def densely(module: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"sentence_embedding": torch.tanh(module.linear(given["sentence_embedding"]))}


def test_an_embedder_brings_its_tokenizer_its_pooling_and_what_follows() -> None:
    model = embedder()
    found = wherefrom.explain(A, model, target=wherefrom.similarity(B), method="integrated-gradients")
    own = []
    for text in (A, B):
        states = model[0].auto_model(**tiny.tokenizer()(text, return_tensors="pt")).last_hidden_state
        own.append(torch.tanh(model[2].linear(states.mean(1))))
    assert float(found.prediction) == pytest.approx(float(cosine_similarity(*own)), abs=1e-4)
    assert found.readout.why == "mean"


def test_an_embedder_that_pools_otherwise_is_refused() -> None:
    for modes in ("max", ("mean", "max")):
        with pytest.raises(WherefromError, match=r"pools its tokens by .*max"):
            wherefrom.open_model(embedder(modes))
    with pytest.warns(wherefrom.WherefromWarning, match="puts a prompt before each text"):
        wherefrom.open_model(embedder(prompt="query"))


def test_a_folder_whose_embeddings_go_through_more_is_refused(tmp_path: Path) -> None:
    tiny.model("bert", "encoder", num_hidden_layers=1).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    kinds = ("Transformer", "Pooling", "Dense", "Normalize")
    listed = [{"path": kind, "type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    (tmp_path / "Pooling").mkdir()
    (tmp_path / "Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    assert wherefrom.explain(A, tmp_path, method="alti").readout.why == "mean"
    with pytest.raises(WherefromError, match="go through Dense after the pooling"):
        wherefrom.explain(A, tmp_path, target=wherefrom.similarity(B), method="attcat")


@pytest.mark.slow
def test_a_sentence_transformer_gives_its_own_similarity(tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    modules = pytest.importorskip("sentence_transformers.models", reason="an older or newer sentence-transformers")
    tiny.model("bert", "encoder", num_hidden_layers=2).save_pretrained(tmp_path)
    tiny.tokenizer(model_max_length=40).save_pretrained(tmp_path)
    parts = [modules.Transformer(str(tmp_path)), modules.Pooling(24, "mean"), modules.Dense(24, 8), modules.Normalize()]
    embedder = package.SentenceTransformer(modules=parts)
    own = embedder.encode([A, B])
    found = wherefrom.explain(A, embedder, target=wherefrom.similarity(B), method="integrated-gradients")
    assert float(found.prediction) == pytest.approx(float(own[0] @ own[1]), abs=1e-3)
