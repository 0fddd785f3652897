"""Opening a checkpoint: broken ones are refused in a sentence, and the caller's process stays as it is."""

from __future__ import annotations

import json
import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import tiny
import wherefrom
from wherefrom.errors import WherefromError, WherefromWarning


def checkpoint(folder: Path, task: str = "classification", **config: Any) -> Path:
    """A tiny model as save_pretrained writes it, with changes to its config.json."""
    tiny.model(task=task).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, **config}))
    return folder


class Opens:
    """What a pickle may do when it is loaded."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("never",)


def as_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weights": Opens()}, folder / "pytorch_model.bin")


def as_dangling_link(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "nowhere")


def as_junk(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"junk")


@pytest.mark.parametrize(
    ("config", "change", "says"),
    [
        ({"dtype": "junk"}, None, "config.json names the dtype 'junk'; expected one of float32"),
        ({"dtype": 7}, None, "config.json names the dtype 7"),
        ({"hidden_size": "many"}, None, "cannot open the model .*hidden_size"),
        ({"num_attention_heads": 0}, None, "cannot open the model .*ZeroDivisionError"),
        (
            {"hidden_size": 32},
            None,
            r"do not fit its config.json: .* is \(24,\) where \(32,\) is expected, and \d+ more",
        ),
        ({"num_hidden_layers": 4}, None, "no weights for bert.encoder.layer.3.* which would be random"),
        ({}, as_pickle, "a pickle with more than tensors in it, which torch refuses to load"),
        ({}, as_dangling_link, "cannot open the model .*model.safetensors"),
        ({}, as_junk, "cannot open the model .*SafetensorError"),
    ],
)
def test_broken_checkpoints_are_refused_in_a_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], config: dict[str, Any], change: Any, says: str
) -> None:
    folder = checkpoint(tmp_path, **config)
    if change is not None:
        change(folder)
    capfd.readouterr()
    with pytest.raises(WherefromError, match=says):
        wherefrom.explain("the cat", folder)
    assert capfd.readouterr() == ("", ""), "nothing but our own sentence reaches the screen"


def test_a_quantised_checkpoint_names_the_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(tmp_path, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(WherefromError, match=r"cannot open the model .*bitsandbytes"):
        wherefrom.explain("the cat", folder)


def test_a_link_that_leads_nowhere_beside_the_weights_does_no_harm(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    (folder / "notes.txt").symlink_to(folder / "nowhere")
    assert len(wherefrom.explain("the cat", folder).tokens) == 4


def test_layers_that_the_config_forgets_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint(tmp_path, num_hidden_layers=2)
    capfd.readouterr()
    with pytest.warns(WherefromWarning, match="weights that the model does not use: bert.encoder.layer.2"):
        wherefrom.explain("the cat", folder)
    assert "LOAD REPORT" not in "".join(capfd.readouterr())


def test_another_head_left_unused_is_nothing_to_talk_about(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint(tmp_path)
    capfd.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error", WherefromWarning)
        wherefrom.explain("the cat", folder, task="encoder", method="attention")
    assert capfd.readouterr() == ("", "")


def test_a_folder_of_multiple_choice_is_refused_unless_its_head_is_to_be_left_out(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, task="encoder", architectures=["BertForMultipleChoice"])
    with pytest.raises(WherefromError, match=r"BertForMultipleChoice, .* multiple choice is not explained. task='enc"):
        wherefrom.explain("the cat", folder)
    assert wherefrom.explain("the cat", folder, task="encoder").target.kind == "none"


def test_a_head_that_is_left_out_is_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, task="encoder", architectures=["BertForNextSentencePrediction"])
    with pytest.warns(WherefromWarning, match="as BertForNextSentencePrediction, whose head wherefrom does not know"):
        assert wherefrom.explain("the cat", folder).target.kind == "none"


def test_a_bare_encoder_may_lack_its_pooler_and_nothing_else(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, task="masked-lm")
    assert wherefrom.explain("the cat", folder, task="encoder", method="attention").target.kind == "none"
    checkpoint(tmp_path, task="encoder", num_hidden_layers=4)
    with pytest.raises(WherefromError, match=r"no weights for encoder.layer.3"):
        wherefrom.explain("the cat", folder, method="attention")


def test_a_checkpoint_without_a_tokenizer_reads_no_text(tmp_path: Path) -> None:
    """transformers makes up a tokenizer to which every word is unknown."""
    tiny.model().save_pretrained(tmp_path)
    with pytest.raises(WherefromError, match="no tokenizer"):
        wherefrom.explain("the cat", tmp_path)
    assert len(wherefrom.explain([5, 6, 7], tmp_path, method="attention").tokens) == 3


@pytest.mark.parametrize(
    ("config", "position"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, 0),
        ({"pooling_mode_lasttoken": True}, 3),
        ({"pooling_mode": "mean"}, None),
    ],
)
def test_a_sentence_embedding_is_read_where_its_folder_says(
    tmp_path: Path, config: dict[str, Any], position: int | None
) -> None:
    folder = checkpoint(tmp_path, task="encoder")
    plain = wherefrom.explain("the cat", folder, method="attention")
    assert plain.readout.position == 0
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 24, **config}))
    found = wherefrom.explain("the cat", folder, method="attention", dtype="float32")
    assert found.readout.position == position
    rows = plain.aggregated[-1]
    np.testing.assert_allclose(found.scores, rows.mean(0) if position is None else rows[position])
    assert wherefrom.explain("the cat", folder, method="attention", position="last").readout.position == 3
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')  # changed since
    assert wherefrom.explain("the cat", folder, method="attention", dtype="float32").readout.position == 3


def test_a_pooling_without_a_readout_position_is_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, task="encoder")
    (folder / "2_Pooling").mkdir()
    (folder / "2_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    modules = [{"idx": 0, "path": "", "type": "a.Transformer"}, {"idx": 1, "path": "2_Pooling", "type": "b.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.warns(WherefromWarning, match="pools its tokens by max_tokens"):
        wherefrom.explain("the cat", folder, method="attention")


PIPELINES = {
    "text-classification": "classification",
    "fill-mask": "masked-lm",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
    "text-generation": "causal-lm",
    "feature-extraction": "encoder",
}


@pytest.mark.parametrize("kind", PIPELINES)
def test_a_pipeline_is_its_model_and_tokenizer(kind: str) -> None:
    if kind not in transformers.pipelines.SUPPORTED_TASKS:
        pytest.skip(f"this transformers has no pipeline for {kind}")
    model, tokenizer = tiny.model("gpt2" if kind == "text-generation" else "bert", PIPELINES[kind]), tiny.tokenizer()
    pipe = transformers.pipeline(kind, model=model, tokenizer=tokenizer, device="cpu")
    text = "the cat [MASK] good ."
    expected = wherefrom.explain(text, model, tokenizer, method="attention-rollout")
    found = wherefrom.explain(text, pipe, method="attention-rollout")
    assert (found.scores == expected.scores).all()
    assert found.target == expected.target


# The caller's process -------------------------------------------------------------------------------------


def process() -> dict[str, Any]:
    """What belongs to the caller and must come back."""
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": str(np.random.get_state()),
        "python": random.getstate(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "filters": list(warnings.filters),
        "verbosity": transformers.logging.get_verbosity(),
        "bars": transformers.logging.is_progress_bar_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("method", [each.name for each in tiny.methods()])
def test_the_process_comes_back_and_the_mode_makes_no_difference(method: str, mode: Any) -> None:
    if method == "integrated-gradients":
        pytest.importorskip("captum", reason="integrated gradients is captum's (extra captum)")
    model = tiny.model()
    expected = wherefrom.explain(tiny.ids(5), model, method=method, **_options(method)).scores
    with mode():
        before = process()
        found = wherefrom.explain(tiny.ids(5), model, method=method, **_options(method)).scores
        assert process() == before
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def _options(method: str) -> dict[str, Any]:
    """Token ids come without a tokenizer, so that a blank has to be named."""
    known = next(each for each in wherefrom.methods() if each.name == method).options
    return {name: 4 for name in ("by", "baseline") if name in known}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_opened_by_name_in_inference_mode_is_good_for_gradients_later(tmp_path: Path, dtype: str) -> None:
    folder = checkpoint(tmp_path)
    with torch.inference_mode():
        before = process()
        wherefrom.capture("the cat", folder, dtype=dtype).layers[0].block.w_q  # noqa: B018  (kept with the model)
        wherefrom.explain("the cat", folder, method="attention", dtype=dtype)
        assert process() == before
    for method in ("saliency", "deeplift", "transformer-attribution"):
        assert np.isfinite(wherefrom.explain("the cat", folder, method=method, dtype=dtype).scores).all()


def test_a_name_of_the_hub_without_a_network_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub would ask six times within half a minute."""

    asked: list[str] = []

    class Unplugged:
        def head(self, address: str, **_: Any) -> None:
            asked.append(address)
            raise OSError("Name or service not known")

    monkeypatch.setattr("wherefrom.model.loading.get_session", Unplugged)
    with pytest.raises(WherefromError, match=r"neither a folder nor in the cache, and https?://\S+ cannot be reached"):
        wherefrom.explain("the cat", "nobody/nothing-of-this-name")
    assert len(asked) == 1
    with pytest.raises(WherefromError, match=r"cannot open the model '\./nothing'"):
        wherefrom.explain("the cat", "./nothing")
    assert len(asked) == 1  # which is no name of the hub's


def test_opening_draws_no_random_numbers(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, task="masked-lm")
    before = process()
    wherefrom.explain("the cat", folder, task="encoder", method="attention")  # its pooler is made anew
    assert process() == before


def test_a_model_loaded_in_inference_mode_is_refused_for_gradients() -> None:
    with torch.inference_mode():
        model = tiny.model()
    assert np.isfinite(wherefrom.explain(tiny.ids(5), model, method="attention").scores).all()
    for method in ("saliency", "gradient-x-input", "deeplift"):
        with pytest.raises(WherefromError, match=r"loaded under torch.inference_mode"):
            wherefrom.explain(tiny.ids(5), model, method=method, **_options(method))


def test_so_is_one_whose_buffers_alone_were_made_there(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    with torch.inference_mode():
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    assert any(each.is_inference() for each in model.buffers())
    with pytest.raises(WherefromError, match=r"loaded under torch.inference_mode"):
        wherefrom.explain("the cat", model, tiny.tokenizer(), method="gradient-x-input")


@pytest.mark.parametrize(("variant", "task"), [("gemma", "causal-lm"), ("bert", "classification")])
def test_weights_that_are_changed_after_opening_are_seen(variant: str, task: str) -> None:
    model = tiny.model(variant, task, dtype=torch.float64)
    opened, ids = wherefrom.open_model(model), tiny.ids(7)
    asked = ("norm-residual-ln", "attn-lrp", "decompx")
    before = [wherefrom.explain(ids, opened, method=method).scores for method in asked]
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" in name.lower():
                weights.mul_(torch.linspace(0.5, 2, len(weights)))
    for method, old in zip(asked, before, strict=True):
        found = wherefrom.explain(ids, opened, method=method).scores
        assert np.abs(found - wherefrom.explain(ids, model, method=method).scores).max() < 1e-12
        assert np.abs(found - old).max() > 1e-3
