"""What a training starts from: models and vocabularies that are there, and of the kind that is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers
from review_rows import write

from wherefrom.errors import UnknownName, UnsupportedModel, WherefromError
from wherefrom.training import accuracy, bleu, checkpoints, classify, images, lm, loop, pretrain, prompt
from wherefrom.training.labelled import Columns

PROMPTS: list[dict[str, object]] = [{"text": "is [MASK] great", "target": "very", "foil": "not"}] * 4


@pytest.fixture
def no_words(tmp_path: Path) -> str:
    """A model's folder without a vocabulary: transformers makes one up, of special tokens alone."""
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return str(tmp_path / "bare")


def test_a_tokenizer_that_is_not_there_is_said_not_to_be(tmp_path: Path, no_words: str) -> None:
    (tmp_path / "text.txt").write_text("a good film .\n" * 4)
    for train in (lm.pretrain, pretrain.pretrain):
        run = loop.Schedule(tmp_path / train.__module__, steps=2, device="cpu", progress=False)
        with pytest.raises(UnknownName, match=r"cannot open the tokenizer '\./nosuch'.*expected a shipped model"):
            train([str(tmp_path / "text.txt")], run, tokenizer="./nosuch")
    with pytest.raises(UnknownName, match="cannot open the tokenizer 'wherefrom/picture'"):
        checkpoints.tokenizer("wherefrom/picture")
    with pytest.raises(UnknownName, match="it has no vocabulary"):
        checkpoints.tokenizer(no_words)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("wherefrom/lm", r"a model of the type llama cannot be one; expected e\.g\. wherefrom/mlm"),
        ("wherefrom/sentiment", r"no weights for cls\.predictions\.bias.* and 2 more, which would be random"),
    ],
)
def test_a_prompt_is_for_masked_language_models(model: str, why: str, tmp_path: Path) -> None:
    data = write(tmp_path / "prompts.jsonl", PROMPTS)
    run = loop.Schedule(tmp_path / "out", steps=2, device="cpu", progress=False)
    with pytest.raises(UnsupportedModel, match=f"'{model}' is no masked language model: .*{why}"):
        prompt.prompt(data, run, prompt.PromptColumns(), model=model)
    with pytest.raises(UnsupportedModel, match="is no masked language model"):
        accuracy.prompts(model, data, prompt.PromptColumns())


def test_what_is_measured_has_weights_of_its_own(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.jsonl", [{"text": "fine", "label": each} for each in (0, 1)])
    with pytest.raises(UnsupportedModel, match=r"'wherefrom/mlm' is no classifier of texts: .* which would be random"):
        accuracy.labels("wherefrom/mlm", rows, Columns())
    with pytest.raises(UnsupportedModel, match="'wherefrom/sentiment' is no classifier of pictures"):
        images.measure("wherefrom/sentiment", rows, images.ImageColumns())
    with pytest.raises(UnsupportedModel, match="'wherefrom/lm' is no translator"):
        bleu.translate("wherefrom/lm", ["ein Haus"])
    with pytest.raises(UnsupportedModel, match="'wherefrom/picture' is no classifier of texts"):
        classify.with_head("wherefrom/picture", ["a", "b"])


@pytest.mark.parametrize("shown", [True, False])
def test_opening_draws_no_bars_and_leaves_the_setting(shown: bool, capfd: pytest.CaptureFixture[str]) -> None:
    before = transformers.logging.is_progress_bar_enabled()
    (transformers.logging.enable_progress_bar if shown else transformers.logging.disable_progress_bar)()
    try:
        checkpoints.network("wherefrom/mlm", checkpoints.MASKED_LM)
        classify.with_head("wherefrom/sentiment", ["negative", "positive"])
        with pytest.raises(WherefromError):
            checkpoints.network("wherefrom/sentiment", checkpoints.MASKED_LM)
        assert transformers.logging.is_progress_bar_enabled() == shown
    finally:
        (transformers.logging.enable_progress_bar if before else transformers.logging.disable_progress_bar)()
    assert "Loading weights" not in capfd.readouterr().err


def test_what_lies_beyond_the_network_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wherefrom.model.loading._reachable", lambda: False)
    for what, opens in {"model": checkpoints.configuration, "tokenizer": checkpoints.tokenizer}.items():
        with pytest.raises(UnknownName, match=rf"the {what} 'nosuch': it is neither .* and .* cannot be reached"):
            opens("nosuch")
