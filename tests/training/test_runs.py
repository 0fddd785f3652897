"""Whole runs on the CPU: they end in usable models, go on after a kill, and say what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from review_rows import reviews, write
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaForCausalLM,
)
from typer.testing import CliRunner

import wherefrom
from wherefrom import zoo
from wherefrom.cli import app
from wherefrom.cli.train import tell
from wherefrom.errors import MissingExtra, UnknownName, WherefromError, WherefromWarning
from wherefrom.training import accuracy, agree, average, classify, lm, loop, pretrain, prompt, vocabulary
from wherefrom.training.labelled import Columns

NAMES = {"0": "negative", "1": "positive"}
LINES = [row["text"] for row in reviews(4000, seed=9)]


def flags(options: dict[str, object]) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", str(value))]


def run(out: Path, **changed: object) -> loop.Schedule:
    settings: dict[str, object] = {"device": "cpu", "progress": False, "learning_rate": 1e-3, "patience": 0}
    return loop.Schedule(out, **{**settings, **changed})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer masked language model, pretrained for a moment on the grammar's sentences."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "text.txt").write_text("\n".join(map(str, LINES)))
    shape = pretrain.EncoderShape(layers=2, width=32, heads=2, vocabulary=200)
    reading = pretrain.MaskedText(length=32, ratio=2, long_share=0.2, held_out=0.1)
    outcome = pretrain.pretrain(
        [str(folder / "text.txt")], run(folder / "mlm", steps=60, batch=16, checks=2), shape, reading
    )
    assert outcome.steps == 60
    return folder / "mlm"


def test_pretraining_learns_and_leaves_a_plain_folder(tiny: Path) -> None:
    report = json.loads((tiny / "training.json").read_text())
    words = report["shape"]["vocabulary"]
    assert report["outcome"]["metrics"]["loss"] < 0.8 * np.log(words)  # a guess among all words would have log |V|
    assert not (tiny / "checkpoints").exists()
    network = AutoModelForMaskedLM.from_pretrained(tiny)
    assert network.config.hidden_dropout_prob == 0.1  # what fine-tuning wants
    assert network.config.max_position_embeddings == 64
    assert AutoTokenizer.from_pretrained(tiny)("the film")["input_ids"][0] == 2


def test_pretraining_continues_from_a_checkpoint(tiny: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(map(str, LINES)))
    reading = pretrain.MaskedText(length=32, ratio=1, long_share=0, held_out=0.1)
    before = json.loads((tiny / "training.json").read_text())["outcome"]["metrics"]["loss"]
    outcome = pretrain.pretrain(
        [str(text)], run(tmp_path / "more", steps=40, batch=16, checks=1), None, reading, model=str(tiny)
    )
    assert outcome.metrics["loss"] < before


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer Llama, pretrained for a moment on the grammar's sentences."""
    folder = tmp_path_factory.mktemp("decoder")
    (folder / "text.txt").write_text("\n".join(map(str, LINES)))
    shape = lm.DecoderShape(layers=2, width=32, heads=4, groups=2, units=64, vocabulary=400)
    settings = run(folder / "lm", steps=80, batch=16, checks=2, learning_rate=1e-2)
    outcome = lm.pretrain([str(folder / "text.txt")], settings, shape, length=32, held_out=0.1)
    assert outcome.steps == 80
    return folder / "lm"


def test_a_language_model_learns_and_leaves_a_plain_folder(decoder: Path) -> None:
    report = json.loads((decoder / "training.json").read_text())
    assert report["outcome"]["metrics"]["loss"] < 0.5 * np.log(400)  # a guess among all pieces would have log |V|
    network = AutoModelForCausalLM.from_pretrained(decoder)
    assert network.config.num_key_value_heads == 2
    assert network.config.use_cache  # which Trainer turns off
    tokenizer = AutoTokenizer.from_pretrained(decoder)
    assert tokenizer("The film")["input_ids"][0] == network.config.bos_token_id
    assert wherefrom.explain("The film is", model=str(decoder), method="attention-rollout").scores.shape[0] > 2


def test_dropout_is_of_what_is_written_to_the_residual_stream_and_in_training_only() -> None:
    config = lm.llama(lm.DecoderShape(2, 16, 4, 2, 24, vocabulary=50), 32)
    config.vocab_size = 50
    network = LlamaForCausalLM(config)
    ids = torch.arange(12).reshape(2, 6)
    plain = network.eval()(ids).logits
    lm.drop_out(network, 0.5)
    torch.testing.assert_close(network.eval()(ids).logits, plain)
    network.train()
    written: list[torch.Tensor] = []
    for part in (network.model.embed_tokens, network.model.layers[1].self_attn.o_proj, network.model.layers[1].mlp):
        part.register_forward_hook(lambda _module, _args, out: written.append(out))
    network(ids)
    assert all(0.3 < float((each == 0).float().mean()) < 0.7 for each in written)


def test_bits_per_byte_are_the_cross_entropy_of_the_text(decoder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(map(str, LINES[:5])))
    found = lm.measure(str(decoder), [str(text)])
    assert found.bytes == len(text.read_bytes()) + 1  # the last line ends, too
    tokenizer, network = AutoTokenizer.from_pretrained(decoder), AutoModelForCausalLM.from_pretrained(decoder)
    ids = tokenizer("\n".join(map(str, LINES[:5])) + "\n", add_special_tokens=False)["input_ids"]
    bits = 0.0
    for start in range(0, len(ids), 31):  # windows of 32 with the mark between documents
        row = torch.tensor([[tokenizer.bos_token_id, *ids[start : start + 31]]])
        bits += float(network(row, labels=row).loss.detach()) * (row.shape[1] - 1) / np.log(2)
    assert found.tokens == len(ids)
    assert found.bits == pytest.approx(bits, rel=1e-4)


def test_minimal_pairs_by_probability_and_by_frequency(decoder: Path, tmp_path: Path) -> None:
    good = [str(line) for line in LINES[:20]]
    rows: list[dict[str, object]] = [{"good": s, "bad": " ".join(s.split()[::-1]), "kind": "order"} for s in good]
    data = write(tmp_path / "pairs.jsonl", [*rows, {"good": good[0], "bad": good[0] + " zzz qqq", "kind": "word"}])
    columns = prompt.PromptColumns(good="good", bad="bad")
    assert accuracy.is_causal(str(decoder))
    scores = {score.group: score for score in accuracy.sentences(str(decoder), data, columns, by="kind", batch=7)}
    assert scores["order"].accuracy > 0.9
    text = tmp_path / "text.txt"
    text.write_text("\n".join(good))
    by_frequency = {s.group: s for s in accuracy.frequencies(str(decoder), [str(text)], data, columns, by="kind")}
    assert by_frequency["word"].accuracy == 1  # more words, less probable


@pytest.mark.slow
def test_classify_500_rows_ends_in_a_usable_model(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", reviews(500))
    test = write(tmp_path / "test.jsonl", reviews(200, seed=1))
    out = tmp_path / "out"
    settings = run(out, epochs=5, batch=16, learning_rate=3e-4)
    outcome = classify.classify([train], settings, Columns(names=NAMES), model="wherefrom/mlm")
    assert outcome.metrics["accuracy"] > 0.9
    [score] = accuracy.labels(str(out), test, Columns(names=NAMES))
    assert score.accuracy > 0.9  # the negated fifth cannot be had from single words
    network = AutoModelForSequenceClassification.from_pretrained(out)
    assert network.config.id2label == {0: "negative", 1: "positive"}


def test_pairs_and_any_label_set(tiny: Path, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"one": f"the film is {a}", "two": f"the film is {b}", "verdict": "same" if a == b else "other"}
        for a in ("great", "bad", "dull") for b in ("great", "bad", "dull", "ugly")
    ]  # fmt: skip
    path = write(tmp_path / "pairs.jsonl", rows * 3)
    columns = Columns(text="one", pair="two", label="verdict")
    classify.classify([path], run(tmp_path / "out", epochs=1, batch=8), columns, model=str(tiny))
    config = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").config
    assert config.label2id == {"other": 0, "same": 1}


@pytest.mark.parametrize("task", ["classify", pytest.param("qa", marks=pytest.mark.slow)])
def test_a_killed_run_resumes_and_ends_as_if_undisturbed(task: str, tiny: Path, tmp_path: Path) -> None:
    rows = reviews(240)
    if task == "qa":
        texts = [str(row["text"]) for row in rows]
        rows = [
            {"question": "what is it ?", "context": text, "answers": [text[:8]], "answer_starts": [0]} for text in texts
        ]
    train = write(tmp_path / "train.jsonl", rows)

    def command(out: str) -> list[str]:
        options = {"epochs": 3, "batch": 8, "checks": 3, "patience": 0, "lr": 1e-3, "device": "cpu", "seed": 5}
        script = [sys.executable, "-m", "wherefrom", "train", task, str(train)]
        return [*script, "--model", str(tiny), "--out", str(tmp_path / out), "--quiet", *flags(options)]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command("whole"), check=True, env=environment, capture_output=True)
    killed = subprocess.Popen(command("killed"), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while loop.last_checkpoint(tmp_path / "killed") is None:
        assert killed.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "no checkpoint appeared"
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "training.json").exists()
    done = subprocess.run(command("killed"), check=True, env=environment, capture_output=True, text=True)
    assert "(resumed)" in done.stdout
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert max((whole[name] - resumed[name]).abs().max() for name in whole) == 0


@pytest.mark.parametrize(("steps", "told"), [(1, "1 step in 2 s"), (2, "2 steps in 2 s")])
def test_the_outcome_is_told(steps: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    tell(loop.Trained(Path("out"), {"loss": 0.5}, steps, 2.0, resumed=False))
    assert capsys.readouterr().out == f"out: validation loss 0.5000; {told}\n"


def test_a_half_written_checkpoint_is_passed_over(tmp_path: Path) -> None:
    for step, state in ((10, "{}"), (20, '{"cut o')):
        folder = tmp_path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoints" / "checkpoint-30").mkdir()
    found = loop.last_checkpoint(tmp_path)
    assert found is not None
    assert found.name == "checkpoint-10"


def test_a_folder_takes_one_run(tiny: Path, tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", reviews(40))
    settings = run(tmp_path / "out", epochs=1, batch=8)
    classify.classify([train], settings, Columns(), model=str(tiny))
    with pytest.raises(WherefromError, match="already holds a finished run"):
        classify.classify([train], settings, Columns(), model=str(tiny))
    assert classify.classify([train], settings, Columns(), model=str(tiny), fresh=True).steps == 5
    loop.prepare(tmp_path / "other", {"lr": 1, "seed": 0}, fresh=False)
    loop.prepare(tmp_path / "other", {"lr": 1, "seed": 0}, fresh=False)
    assert [each.name for each in (tmp_path / "other" / loop.CHECKPOINTS).iterdir()] == ["run.json"]
    with pytest.raises(WherefromError, match=r"unfinished run with other settings \(lr\)"):
        loop.prepare(tmp_path / "other", {"lr": 2, "seed": 0}, fresh=False)


def test_somebodys_model_is_not_trained_over(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        out = tmp_path / name.partition(".")[0]
        out.mkdir()
        (out / name).write_text("somebody's", encoding="utf-8")
        with pytest.raises(WherefromError, match=rf"holds a model of no training of this kind \({name}\)"):
            loop.prepare(out, {}, fresh=False)
        assert [each.name for each in out.iterdir()] == [name]
        loop.prepare(out, {}, fresh=True)


def test_a_loss_that_is_no_number_stops_the_run(tiny: Path, tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", reviews(40))
    with pytest.raises(WherefromError, match=r"loss became (nan|inf) at step \d+; lower --lr"):
        classify.classify([train], run(tmp_path / "out", batch=4, learning_rate=1e30), Columns(), model=str(tiny))


def test_a_new_head_is_no_news_and_a_body_with_holes_is(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    classify.with_head(str(tiny), ["a", "b"])
    assert "LOAD REPORT" not in "".join(capfd.readouterr())
    shutil.copytree(tiny, tmp_path / "holes")
    weights = load_file(tiny / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "layer.1.output.dense" not in name}
    assert len(kept) == len(weights) - 2
    save_file(kept, tmp_path / "holes" / "model.safetensors", metadata={"format": "pt"})
    with pytest.warns(WherefromWarning, match=r"has no weights for bert\.encoder\.layer\.1\.output\.dense.* random"):
        classify.with_head(str(tmp_path / "holes"), ["a", "b"])


def test_early_stopping_ends_a_run_that_learns_nothing(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write(tmp_path / "train.jsonl", reviews(40))
    settings = run(tmp_path / "out", epochs=50, batch=8, learning_rate=0.0, patience=2)
    outcome = classify.classify([train], settings, Columns(), model=str(tiny))
    assert outcome.steps <= 3 * 5  # with nothing learned, the third validation is the last
    capsys.readouterr()
    tell(outcome)
    told = capsys.readouterr().out
    assert told.endswith(" s; stopped before step 250, after 2 validations without improvement (--patience)\n")
    assert json.loads((tmp_path / "out" / "training.json").read_text())["outcome"]["stopped"] == outcome.stopped


def test_without_patience_every_epoch_is_trained(tiny: Path, tmp_path: Path) -> None:
    """Patience 0 ends no run, in Python as on the command line, though nothing ever improves."""
    train = write(tmp_path / "train.jsonl", reviews(40))
    settings = loop.Schedule(
        tmp_path / "python", epochs=3, batch=8, learning_rate=0.0, patience=0, device="cpu", progress=False
    )
    here = classify.classify([train], settings, Columns(), model=str(tiny))
    options = {"epochs": 3, "batch": 8, "lr": 0.0, "patience": 0, "device": "cpu", "model": tiny}
    asked = ["train", "classify", str(train), "--out", str(tmp_path / "shell"), "--quiet", *flags(options)]
    ran = CliRunner().invoke(app, asked)
    assert ran.exit_code == 0, ran.output
    there = json.loads((tmp_path / "shell" / "training.json").read_text())["outcome"]
    assert (here.steps, here.stopped) == (there["steps"], there["stopped"]) == (15, "")


def test_patience_is_kept_over_an_interruption(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = write(tmp_path / "train.jsonl", reviews(40))

    def trained(out: str) -> loop.Outcome:
        settings = run(tmp_path / out, epochs=50, batch=8, learning_rate=0.0, patience=4)
        return classify.classify([train], settings, Columns(), model=str(tiny))

    whole = trained("whole")
    saves = 0

    def interrupt(*_: Any, **__: Any) -> None:
        nonlocal saves
        saves += 1
        if saves == 3:  # when nothing has improved twice
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop.FiniteLoss, "on_save", interrupt, raising=False)
        with pytest.raises(KeyboardInterrupt):
            trained("cut")
    resumed = trained("cut")
    assert resumed.resumed
    assert resumed.steps == whole.steps


def test_bad_rows_and_labels_are_named(tiny: Path, tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", reviews(20))
    valid = write(tmp_path / "valid.jsonl", [*reviews(3), {"text": "fine", "label": 7}])
    with pytest.raises(WherefromError, match="row 4: label '7' does not occur in training"):
        classify.classify([train], run(tmp_path / "a"), Columns(), model=str(tiny), valid=valid)
    same = write(tmp_path / "same.jsonl", [{"text": "a", "label": "x"}] * 5)
    with pytest.raises(WherefromError, match="only one label, 'x'"):
        classify.classify([same], run(tmp_path / "b"), Columns(), model=str(tiny))


def test_labels_that_are_no_classes_are_to_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "test.jsonl", reviews(8))
    said = r"no class called '0', '1'; its classes are negative, positive: .*, --name 0=CLASS --name 1=CLASS$"
    with pytest.raises(WherefromError, match=said):
        accuracy.labels("wherefrom/sentiment", path, Columns())
    assert accuracy.labels("wherefrom/sentiment", path, Columns(names=NAMES))[0].rows == 8


def test_texts_over_the_limit_are_cut_with_a_warning(tiny: Path, tmp_path: Path) -> None:
    rows = [*reviews(20), {"text": "the film is great . " * 60, "label": 1}]
    path = write(tmp_path / "long.jsonl", [*rows, {"text": "the film is dull . " * 60, "label": 0}])
    with pytest.warns(WherefromWarning, match="fill the 64 tokens"):
        classify.classify([path], run(tmp_path / "out", epochs=1), Columns(), model=str(tiny))


def test_agree_is_gpt2_without_its_causal_mask(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for index in range(300):
        noun = ["dog", "cat", "man", "girl"][index % 4]
        near = ["house", "houses", "tree", "trees"][index // 4 % 4]
        plural = index // 16 % 2
        rows.append({"prefix": f"the {noun}{'s' * plural} near the {near}", "label": ["singular", "plural"][plural]})
    path = write(tmp_path / "prefixes.jsonl", rows)
    extra = write(tmp_path / "extra.jsonl", [{"sentence": "the dogs see it", "verb_index": 2, "label": 1}] * 4)
    outcome = agree.agree(
        [path], run(tmp_path / "out", epochs=8, batch=16), Columns(text="prefix"), extra,
        Columns(text="sentence", until="verb_index", names={"0": "singular", "1": "plural"}),
        shape=agree.AgreementShape(layers=2, width=32, heads=4, vocabulary=120, positions=32),
        held_out=0.02,
        hide=0.05,
    )  # fmt: skip
    assert outcome.metrics["accuracy"] == 1.0
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert network.config._attn_implementation == "eager"
    one, other = (tokenizer(f"the dog near the {end}", return_tensors="pt") for end in ("house", "houses"))
    assert one["input_ids"][0, -1] == tokenizer.cls_token_id
    first = [network.transformer(**x).last_hidden_state[0, 0] for x in (one, other)]
    assert (first[0] - first[1]).abs().max() > 1e-6  # the first word sees the last one


def test_words_are_hidden_anew_each_time_and_never_the_frame() -> None:
    row = {"input_ids": [2, *range(10, 510), 3], "labels": 1}
    first, second = (agree.hidden(row, np.random.default_rng(seed), 0.2, mask=4, kept=[2, 3]) for seed in (0, 1))
    for seen in (first["input_ids"], second["input_ids"]):
        assert (seen[0], seen[-1]) == (2, 3)
        assert all(now in (old, 4) for now, old in zip(seen, row["input_ids"], strict=True))
        assert 60 < seen.count(4) < 140
    assert first["input_ids"] != second["input_ids"]
    assert row["input_ids"][1] == 10


def test_agree_starts_from_other_embeddings() -> None:
    place = zoo.path("wherefrom/mlm")
    words = vocabulary.cls_at_end(AutoTokenizer.from_pretrained(place), 32)
    network = agree.network(agree.AgreementShape(layers=1, width=16, heads=2, positions=32), words)
    agree.start_from(network, words, "wherefrom/mlm")
    theirs = AutoModel.from_pretrained(place, dtype=torch.float32).get_input_embeddings().weight.detach().double()
    ours = network.get_input_embeddings().weight.detach().double()
    centred = theirs - theirs.mean(0)
    top = torch.linalg.eigvalsh(centred.T @ centred)[-16:].sqrt()  # lengths of the principal components
    lengths = ours.norm(dim=0).sort().values
    torch.testing.assert_close(lengths / lengths[-1], top / top[-1], atol=1e-4, rtol=0)
    with pytest.raises(WherefromError, match="another vocabulary"):
        agree.start_from(network, vocabulary.learn(["a b c"] * 30, 60, 16), "wherefrom/mlm")
    with pytest.raises(WherefromError, match="expected at least the new model's 512"):
        agree.start_from(agree.network(agree.AgreementShape(1, 512, 2, positions=32), words), words, "wherefrom/mlm")


def test_prompt_learns_to_prefer_the_target(tiny: Path, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"text": f"{s} is [MASK] great .", "target": "very", "foil": "not"}
        for s in ("the film", "the plot", "the music")
    ] * 8
    path = write(tmp_path / "prompts.jsonl", rows)
    outcome = prompt.prompt(path, run(tmp_path / "out", epochs=5, batch=8), prompt.PromptColumns(), model=str(tiny))
    assert outcome.metrics["accuracy"] == 1.0
    [score] = accuracy.prompts(str(tmp_path / "out"), path, prompt.PromptColumns())
    assert (score.right, score.rows) == (24, 24)


def test_the_last_weights_are_kept_where_they_are_asked_for(tiny: Path, tmp_path: Path) -> None:
    """Validation prefers the other word, so that every epoch makes it worse."""
    train, valid = (
        write(tmp_path / f"{name}.jsonl", [{"text": "the film is [MASK] great .", "target": a, "foil": b}] * 8)
        for name, a, b in (("train", "very", "not"), ("valid", "not", "very"))
    )
    weights = {}
    for keep_last in (False, True):
        settings = run(tmp_path / str(keep_last), epochs=4, batch=8, learning_rate=1e-2)
        prompt.prompt(train, settings, prompt.PromptColumns(), str(tiny), valid, keep_last=keep_last)
        network = AutoModelForMaskedLM.from_pretrained(settings.out)
        tokens = AutoTokenizer.from_pretrained(settings.out)
        batch = prompt.Pad(tokens)(prompt.encode(prompt.read(train, prompt.PromptColumns())[:1], tokens))
        good, bad = prompt.compare(network.eval(), batch)[0].tolist()
        weights[keep_last] = good - bad
    assert weights[True] > weights[False] + 0.5  # trained to the end


def test_prompts_that_cannot_be_asked_are_named(tiny: Path, tmp_path: Path) -> None:
    bad: list[dict[str, object]] = [
        {"text": "no mask", "target": "very", "foil": "not"},
        {"text": "[MASK] and [MASK]", "target": "very", "foil": "not"},
        {"text": "is [MASK] great", "target": "very", "foil": "Very"},
    ]
    with pytest.raises(
        WherefromError, match=r"3 bad rows: row 1: .*0 \[MASK\].*row 2: .*2 \[MASK\].*row 3: .*same word"
    ):
        prompt.read(write(tmp_path / "bad.jsonl", bad), prompt.PromptColumns())
    for given, missing in (("good", "bad"), ("bad", "good")):
        with pytest.raises(WherefromError, match=f"--{given} names one sentence of a minimal pair, and --{missing} is"):
            prompt.PromptColumns(**{given: "sentence"})
    with pytest.raises(WherefromError, match="no column 'word'; it has: text, target, foil"):
        prompt.read(tmp_path / "bad.jsonl", prompt.PromptColumns(target="word"))
    split: list[dict[str, object]] = [
        {"text": "is [MASK] great", "target": "very", "foil": "zebraic"},
        {"text": "is [MASK] great", "target": "very", "foil": "not"},
    ]
    path = write(tmp_path / "split.jsonl", split)
    items = prompt.read(path, prompt.PromptColumns())
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    with pytest.raises(WherefromError, match=r"row 1: 'zebraic' is not one piece.*pass --skip-split"):
        prompt.whole_words(items, tokenizer, path, skip=False)
    with pytest.warns(WherefromWarning, match="1 of 2 rows left out"):
        assert len(prompt.whole_words(items, tokenizer, path, skip=True)) == 1
    [score] = accuracy.prompts(str(tiny), path, prompt.PromptColumns())
    assert (score.rows, score.left_out) == (1, 1)


def test_the_average_lies_in_the_middle(tiny: Path, tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", reviews(40))
    for seed in (0, 1):
        classify.classify([train], run(tmp_path / f"s{seed}", epochs=1, seed=seed), Columns(), model=str(tiny))
    average.average([tmp_path / "s0", tmp_path / "s1"], tmp_path / "mean")
    one, two, mean = (load_file(tmp_path / name / "model.safetensors") for name in ("s0", "s1", "mean"))
    assert all(torch.allclose(mean[name], (one[name] + two[name]) / 2) for name in mean)
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "mean").config.num_labels == 2
    with pytest.raises(WherefromError, match="another kind of model"):
        average.average([tmp_path / "s0", tiny], tmp_path / "none")
    with pytest.raises(WherefromError, match="two models at least"):
        average.average([tiny], tmp_path / "none")
    for taken in ("s0", "s1", "mean"):
        with pytest.raises(WherefromError, match="holds a model already"):
            average.average([tmp_path / "s0", tmp_path / "s1"], tmp_path / taken)


def test_unknown_devices_and_precisions_are_refused(tiny: Path, tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", reviews(20))
    with pytest.raises(WherefromError, match="expected auto, bf16 or float32"):
        classify.classify([train], run(tmp_path / "a", precision="fp8"), Columns(), model=str(tiny))
    with pytest.raises(WherefromError, match="unknown device 'gpu'; expected one of auto, cpu, cuda"):
        classify.classify([train], run(tmp_path / "a", device="gpu"), Columns(), model=str(tiny))
    with pytest.raises(WherefromError, match="seed=-1; expected a whole number from 0"):
        classify.classify([train], run(tmp_path / "a", seed=-1), Columns(), model=str(tiny))
    with pytest.raises(WherefromError, match="cannot use the device 'gpu'"):
        lm.measure("wherefrom/lm", [str(train)], "gpu")
    if not torch.cuda.is_available():
        with pytest.raises(WherefromError, match="torch sees no GPU"):
            classify.classify([train], run(tmp_path / "b", device="cuda"), Columns(), model=str(tiny))


def test_accuracy_by_a_column(tiny: Path, tmp_path: Path) -> None:
    rows = [{**row, "half": "first" if index < 10 else "second"} for index, row in enumerate(reviews(20))]
    path = write(tmp_path / "rows.jsonl", rows)
    classify.classify([path], run(tmp_path / "out", epochs=1), Columns(), model=str(tiny))
    scores = accuracy.labels(str(tmp_path / "out"), path, Columns(), by="half")
    assert [(score.group, score.rows) for score in scores] == [("first", 10), ("second", 10), ("all", 20)]
    assert scores[2].right == scores[0].right + scores[1].right
    assert scores[2].balanced == pytest.approx(scores[2].accuracy)  # as many rows of each label
    held = write(tmp_path / "held.jsonl", rows[:5])
    fewer = accuracy.labels(str(tmp_path / "out"), path, Columns(), exclude=[f"{held}:text"])
    assert fewer[0].rows == sum(row["text"] not in {r["text"] for r in rows[:5]} for row in rows)
    with pytest.raises(WherefromError, match="no column 'third'"):
        accuracy.labels(str(tmp_path / "out"), path, Columns(), by="third")


def test_without_accelerate_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MissingExtra, match=r"'accelerate'.*\[train\]"):
        loop.prepare(tmp_path / "run", {}, fresh=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["bits", "nothere", "text.txt"], ["test", "nothere", "rows.csv"]])
def test_a_model_that_is_not_there_is_said_not_to_be(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a good film .\n" * 4)
    (tmp_path / "rows.csv").write_text("text,label\na good film .,1\n")
    name, model, file = command
    found = CliRunner().invoke(app, ["train", name, model, str(tmp_path / file)])
    assert isinstance(found.exception, UnknownName)
    assert "cannot open the model 'nothere'" in str(found.exception)


def test_bits_of_a_model_that_sees_what_it_predicts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a good film .\n" * 4)
    with pytest.raises(WherefromError, match="'wherefrom/mlm' is for masked-lm; bits per byte are those of a causal"):
        lm.measure("wherefrom/mlm", [str(tmp_path / "text.txt")])
