"""What a run leaves in its folder: nothing where it was refused, all that is needed where it was stopped."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from review_rows import reviews, write
from typer.testing import CliRunner

import wherefrom
from wherefrom.cli import app
from wherefrom.errors import InvalidInput, InvalidOption, RunConflict, UnknownName, WherefromError, WherefromWarning
from wherefrom.training import agree, average, checkpoints, classify, images, lm, loop, pretrain, prompt, translate
from wherefrom.training.labelled import Columns

Training = Callable[[Path, loop.Schedule], object]
TRAININGS: dict[str, Training] = {
    "lm": lambda data, run: lm.pretrain([str(data)], run),
    "pretrain": lambda data, run: pretrain.pretrain([str(data)], run),
    "translate": lambda data, run: translate.train([data], run, test=0.1),
    "agree": lambda data, run: agree.agree([data], run, Columns(text="prefix")),
    "prompt": lambda data, run: prompt.prompt(data, run, prompt.PromptColumns()),
    "image": lambda data, run: images.train([data], run),
    "classify": lambda data, run: classify.classify([data], run, Columns()),
}
FRESH: dict[str, Training] = {
    "lm": lambda data, run: lm.pretrain([str(data)], run, fresh=True),
    "pretrain": lambda data, run: pretrain.pretrain([str(data)], run, fresh=True),
    "translate": lambda data, run: translate.train([data], run, test=0.1, fresh=True),
    "agree": lambda data, run: agree.agree([data], run, Columns(text="prefix"), fresh=True),
    "prompt": lambda data, run: prompt.prompt(data, run, prompt.PromptColumns(), fresh=True),
    "image": lambda data, run: images.train([data], run, fresh=True),
    "classify": lambda data, run: classify.classify([data], run, Columns(), fresh=True),
}
TEXTS = {"lm": "none.txt", "pretrain": "none.txt"}
SHAPE = lm.DecoderShape(layers=1, width=16, heads=2, groups=1, units=16, vocabulary=300)
TEXT = "\n".join(str(row["text"]) for row in reviews(3000, seed=9))


def schedule(out: Path, **changed: Any) -> loop.Schedule:
    usual = {"steps": 4, "batch": 8, "checks": 4, "device": "cpu", "progress": False, "patience": 0}
    return loop.Schedule(out, **{**usual, **changed})


@pytest.mark.parametrize("name", TRAININGS)
def test_a_refused_training_leaves_no_trace(name: str, tmp_path: Path) -> None:
    missing = tmp_path / TEXTS.get(name, "none.jsonl")
    with pytest.raises(UnknownName, match="no such file"):
        TRAININGS[name](missing, schedule(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "checkpoints" / "of-another.txt").write_text("kept")
    with pytest.raises(UnknownName, match="no such file"):
        TRAININGS[name](missing, schedule(tmp_path / "mine"))
    assert [each.name for each in (tmp_path / "mine").rglob("*.*")] == ["of-another.txt"]


def test_too_little_text_leaves_the_folder_free(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("a good film .\n")
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"8192 tokens are needed at least, not \d+; give more"):
            lm.pretrain([str(text)], schedule(out), SHAPE, length=32)
        assert not out.exists()
    text.write_text(TEXT)
    assert lm.pretrain([str(text)], schedule(out, steps=2), SHAPE, length=32, held_out=0.1).steps == 2


def test_a_device_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(WherefromError, match="expected auto, bf16 or float32"):
        translate.train([tmp_path / "none.tsv"], schedule(tmp_path / "out", precision="fp8"))
    assert not (tmp_path / "out").exists()


def stopped(out: Path, text: Path, at: int, patch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    """A training of four steps that ends in this error after so many of them."""
    own = loop.FiniteLoss.on_log

    def stop(self: Any, args: Any, state: Any, *rest: Any, **more: Any) -> None:
        own(self, args, state, *rest, **more)
        if state.global_step > at:
            raise error

    with patch.context() as inner:
        inner.setattr(loop.FiniteLoss, "on_log", stop)
        with pytest.raises(error):
            lm.pretrain([str(text)], schedule(out), SHAPE, length=32, held_out=0.1)


def test_what_was_stopped_goes_on_and_what_was_refused_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    stopped(tmp_path / "early", text, 0, monkeypatch, InvalidInput)
    assert not (tmp_path / "early").exists()
    stopped(tmp_path / "early", text, 0, monkeypatch, KeyboardInterrupt)
    assert loop.resumable(tmp_path / "early")  # the text is read already
    assert not loop.weighted(tmp_path / "early")
    for error in (InvalidInput, KeyboardInterrupt):
        out = tmp_path / error.__name__
        stopped(out, text, 2, monkeypatch, error)
        assert loop.weighted(out)
        with pytest.raises(RunConflict, match=r"unfinished run with other settings \(steps\)"):
            lm.pretrain([str(text)], schedule(out, steps=5), SHAPE, length=32, held_out=0.1)
        assert lm.pretrain([str(text)], schedule(out), SHAPE, length=32, held_out=0.1).resumed


def test_an_interrupt_before_anything_is_kept_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(classify, "label_set", interrupted)
    with pytest.raises(KeyboardInterrupt):
        classify.classify([write(tmp_path / "a.jsonl", reviews(20))], schedule(tmp_path / "out"), Columns())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupted_command_says_how_it_goes_on(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        if kept:
            write(tmp_path / "out" / loop.CHECKPOINTS / loop.CORPUS, [])
        raise KeyboardInterrupt

    monkeypatch.setattr(lm.texts, "tokenizer", interrupted)
    found = CliRunner().invoke(
        app, ["train", "lm", "text.txt", "--steps", "2", "--batch", "4", "--out", str(tmp_path / "out")]
    )
    assert found.exit_code == 130
    assert found.stderr == (
        f"{tmp_path / 'out'}: interrupted; the same command, repeated, resumes it\n" if kept else ""
    )
    assert (tmp_path / "out").exists() == kept


def test_a_folder_of_an_unfinished_training_is_no_model_yet(tmp_path: Path) -> None:
    loop.prepare(tmp_path, {}, fresh=False)
    (tmp_path / "text.txt").write_text(TEXT)
    why = "holds a training that is not finished, and no model yet; repeat the `wherefrom train` command"
    with pytest.raises(RunConflict, match=why):
        wherefrom.explain("a good film", model=str(tmp_path))
    with pytest.raises(RunConflict, match=why):
        lm.measure(str(tmp_path), [str(tmp_path / "text.txt")])
    with pytest.raises(RunConflict, match=why):
        checkpoints.tokenizer(str(tmp_path))
    with pytest.raises(RunConflict, match=why):
        average.average([tmp_path, tmp_path], tmp_path / "mean")


def test_what_another_call_has_begun_is_left_to_it(tmp_path: Path) -> None:
    loop.prepare(tmp_path / "out", {"a": 1}, fresh=False)
    with pytest.raises(InvalidInput), loop.running(schedule(tmp_path / "out"), {"a": 1}, fresh=False):
        raise InvalidInput("refused")
    assert (tmp_path / "out" / loop.CHECKPOINTS / loop.SETTINGS).exists()


def test_settings_that_differ_are_named_one_by_one(tmp_path: Path) -> None:
    old = {"run": {"steps": 600, "seed": 0}, "columns": {"names": {"0": "x"}, "text": "t"}, "shape": None}
    new = {"run": {"steps": 601, "seed": 0}, "columns": {"names": {"0": "y"}, "text": "t"}, "shape": {"layers": 2}}
    loop.prepare(tmp_path / "out", old, fresh=False)
    with pytest.raises(RunConflict, match=r"other settings \(layers, names, steps\); repeat them"):
        loop.prepare(tmp_path / "out", new, fresh=False)


def test_a_weight_that_is_another_one_s_is_not_missing() -> None:
    tied = transformers.BertForMaskedLM(
        transformers.BertConfig(
            hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=20
        )
    )
    output, embedding = "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"
    other = "bert.encoder.layer.0.output.dense.weight"
    assert loop.untied(tied, [output]) == []
    assert loop.untied(tied, [output, other, "of.no.module"]) == [other, "of.no.module"]
    assert loop.untied(tied, [output, embedding]) == [output, embedding]  # neither is there


def test_a_training_says_nothing_but_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    run = schedule(tmp_path / "out", progress=True)
    said = logging.handlers.BufferingHandler(1000)
    logging.getLogger("transformers.trainer").addHandler(said)
    try:
        lm.pretrain([str(tmp_path / "text.txt")], run, SHAPE, length=32, held_out=0.1)
    finally:
        logging.getLogger("transformers.trainer").removeHandler(said)
    assert not [each for each in said.buffer if "missing keys" in each.getMessage()]  # embeddings are the output, too
    written = capfd.readouterr().err
    assert "Writing model shards" not in written
    assert "4/4" in written  # Trainer's own
    assert transformers.logging.is_progress_bar_enabled()


@pytest.mark.parametrize("name", TRAININGS)
def test_a_refused_training_replaces_nothing(name: str, tmp_path: Path) -> None:
    """--fresh throws away what is there, but not for a command that cannot run."""
    out, missing = tmp_path / "out", tmp_path / TEXTS.get(name, "none.jsonl")
    (out / "checkpoints" / "checkpoint-3").mkdir(parents=True)
    (out / "checkpoints" / "checkpoint-3" / "model.safetensors").write_text("weights")
    (out / "training.json").write_text("{}")
    before = sorted(each.relative_to(out) for each in out.rglob("*"))
    with pytest.raises(UnknownName, match="no such file"):
        FRESH[name](missing, schedule(out))
    assert sorted(each.relative_to(out) for each in out.rglob("*")) == before


def test_what_is_replaced_goes_when_there_is_something_in_its_place(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text(TEXT)
    (out / "checkpoints" / "checkpoint-3").mkdir(parents=True)
    (out / "training.json").write_text("old")
    lm.pretrain([str(text)], schedule(out, steps=2), SHAPE, length=32, held_out=0.1, fresh=True)
    assert not [*out.rglob("*.before"), *out.rglob("checkpoint-3")]
    assert (out / "training.json").read_text() != "old"


@pytest.mark.parametrize(
    "made",
    [
        lambda: lm.llama(lm.DecoderShape(width=32, heads=5, groups=1), 64),
        lambda: translate.marian(translate.TranslatorShape(width=32, heads=5), 64),
        lambda: pretrain._network(None, pretrain.EncoderShape(width=32, heads=5), pretrain.MaskedText(), None),  # type: ignore[arg-type]
    ],
)
def test_a_width_is_a_multiple_of_the_heads(made: Callable[[], object]) -> None:
    with pytest.raises(InvalidOption, match="32 cannot be shared by 5 heads; expected a multiple of the heads"):
        made()


def test_groups_divide_the_heads_and_sines_the_width() -> None:
    with pytest.raises(InvalidOption, match=r"by 4 heads in 3 groups; expected .*, and heads that are a multiple"):
        lm.llama(lm.DecoderShape(width=32, heads=4, groups=3), 64)
    with pytest.raises(InvalidOption, match="a width of 33 is odd"):
        translate.marian(translate.TranslatorShape(width=33, heads=3), 64)


def test_a_verb_number_model_says_what_its_shape_and_its_rows_lack(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.jsonl", [{"prefix": f"the cat {i}", "label": "singular"} for i in range(40)])
    with pytest.raises(WherefromError, match="a width of 32 cannot be shared by 5 heads"):
        agree.agree(
            [rows], schedule(tmp_path / "out"), Columns("prefix"), shape=agree.AgreementShape(width=32, heads=5)
        )
    with pytest.raises(WherefromError, match="40 singular, 0 plural; give more of the rarer"):
        agree.agree([rows], schedule(tmp_path / "out"), Columns("prefix"))
    with pytest.raises(WherefromError, match="no rows to read where label is dual"):
        agree.agree([rows], schedule(tmp_path / "out"), Columns("prefix", where={"label": ("dual",)}))


def test_epochs_are_counted_as_they_were_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.jsonl", reviews(48, seed=1))
    run = schedule(tmp_path / "out", steps=None, epochs=2, checks=1, progress=True)
    classify.classify([path], run, Columns(), model="wherefrom/sentiment")
    assert "'epoch': '2'" in capsys.readouterr().out


def test_a_run_of_steps_counts_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    lm.pretrain([str(tmp_path / "text.txt")], schedule(tmp_path / "out", progress=True), SHAPE, length=32, held_out=0.1)
    said = capsys.readouterr().out
    assert "'step': 4" in said
    assert "epoch" not in said


def test_a_step_that_no_memory_holds_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.setattr("wherefrom.training.sizes.physical_memory", lambda: 2**20)
    with pytest.warns(WherefromWarning, match=r"8 x 32 tokens takes about 0 GB, .* has 0: lower --batch or --length"):
        lm.pretrain([str(tmp_path / "text.txt")], schedule(tmp_path / "out"), SHAPE, length=32, held_out=0.1)
