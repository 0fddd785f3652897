"""Value Zeroing's data and models: agreement sentences in two halves, and a masked model fine-tuned on one of them.

The examples are halved by a hash of their id. The model is fine-tuned on all of the one half (prompt fine-tuning,
section 4.2: cross entropy over the logits of target and foil) and everything is measured on the other. The text gives
no hyperparameters. Learning rate, warm-up, batch size and the absence of weight decay are those of the authors' code
(hmohebbi/ValueZeroing, finetuning/run_finetuning.py, 57d448d), which leaves the number of epochs to the command line.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wherefrom.data.blimp import PARADIGMS
from wherefrom.data.example import balance_labels, drawn
from wherefrom.errors import WherefromWarning
from wherefrom.files import write
from wherefrom.model import open_model
from wherefrom.model.vocabulary_words import word_id
from wherefrom.papers.samples import changed, half

if TYPE_CHECKING:
    from wherefrom.data import Dataset, Example
    from wherefrom.papers.recipe import RecipeCall
    from wherefrom.training.accuracy import Score

EPOCHS = 3
TRAINING: dict[str, Any] = {
    "epochs": EPOCHS,
    "learning_rate": 3e-5,
    "warmup": 0.1,
    "batch": 64,
    "weight_decay": 0.0,
    "patience": 0,
}
PAPER_ACCURACY = {"PT": 0.96, "FT": 0.99}  # section 4.2
ACCURACIES = "agreement-accuracy.json"  # beside the fine-tuned weights


def agreement_half(call: RecipeCall, *, test: bool) -> Dataset:
    """The sentences to test on, or to train on; balanced as in the authors' code where the call asks for it.

    As in that code, sentences whose target or foil is not one token of the model are left out first.
    """
    data = _with_known_words(call.read(), call.model)
    if call.options.get("balance"):
        data = balance_labels(data, PARADIGMS["rpsv"])
    return half(data, test=test)


def _with_known_words(data: Dataset, model: str) -> Dataset:
    """The examples whose target and foil are one token each."""
    tokenizer = open_model(model).tokenizer

    @cache
    def is_token(word: str | None) -> bool:
        return word is not None and word_id(tokenizer, word) is not None

    return changed(data, lambda each: each if is_token(each.target) and is_token(each.foil) else None)


def measured_examples(call: RecipeCall, limit: int | None = None) -> Dataset:
    """`limit` sentences of the test half, drawn by the seed; by default as many as the call measures."""
    return drawn(agreement_half(call, test=True), call.limit if limit is None else limit, call.seed)


@dataclass(frozen=True)
class FineTuned:
    """A fine-tuned model, and how often it and the pre-trained one prefer the target on the test half."""

    folder: str
    steps: int
    sentences: int
    accuracy: dict[str, list[Score]]  # of PT and FT: each paradigm, and all

    @property
    def note(self) -> str:
        """Steps, epochs and accuracy beside the paper's, in one line."""
        parts = [
            f"{name} {scores[-1].accuracy:.3f} (paper's BERT: {PAPER_ACCURACY[name]})"
            for name, scores in self.accuracy.items()
        ]
        return (
            f"FT is fine-tuned here on {self.sentences} sentences of the training half: {self.steps} steps, {EPOCHS} "
            f"epochs. Accuracy on the test half (n = {self.accuracy['FT'][-1].rows}): {', '.join(parts)}."
        )


def fine_tune(call: RecipeCall) -> FineTuned:
    """Fine-tune the model of the call on the training half, or read what an earlier recipe has trained."""
    from wherefrom.training.loop import REPORT, Schedule
    from wherefrom.training.prompt import PromptColumns, prompt

    train, test = (agreement_half(call, test=wanted) for wanted in (False, True))
    if call.train_limit is not None:
        train, test = (drawn(each, call.train_limit, call.seed) for each in (train, test))
    setting = f"{call.model} {train.fingerprint} {test.fingerprint} {call.seed} {sorted(TRAINING.items())}"
    folder = call.work / "models" / sha256(setting.encode()).hexdigest()[:12]
    test_file = folder.with_name(f"{folder.name}-test.jsonl")
    if not (folder / REPORT).is_file():  # written last
        folder.parent.mkdir(parents=True, exist_ok=True)
        train_file = _write_prompts(train, folder.with_name(f"{folder.name}-train.jsonl"))
        _write_prompts(test, test_file)
        schedule = Schedule(folder, **TRAINING, seed=call.seed, device=call.device or "auto", progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WherefromWarning)  # rows whose words are not single pieces are left out
            prompt(train_file, schedule, PromptColumns(), call.model, valid=test_file, skip_split=True, keep_last=True)
    report = json.loads((folder / REPORT).read_text())
    accuracy = _accuracies(call, folder, test_file)
    return FineTuned(str(folder), report["outcome"]["steps"], report["train_rows"], accuracy)


def _write_prompts(examples: Iterable[Example], path: Path) -> Path:
    rows = (
        {"text": each.text, "target": each.target, "foil": each.foil, "group": each.group or ""} for each in examples
    )
    write(path, "".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def _accuracies(call: RecipeCall, folder: Path, test_file: Path) -> dict[str, list[Score]]:
    """Of both models on the test half, kept beside the weights."""
    from wherefrom.training.accuracy import Score, prompts
    from wherefrom.training.prompt import PromptColumns

    path = folder / ACCURACIES
    if not path.is_file():
        measure = partial(prompts, data=test_file, columns=PromptColumns(), by="group", device=call.device or "cpu")
        models = {"PT": call.model, "FT": str(folder)}
        found = {name: [asdict(score) for score in measure(model)] for name, model in models.items()}
        write(path, json.dumps(found))
    return {name: [Score(**each) for each in scores] for name, scores in json.loads(path.read_text()).items()}
