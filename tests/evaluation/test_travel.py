"""What is somebody's own goes to worker processes, or is refused before anything begins."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import tiny
import wherefrom
from wherefrom.errors import InvalidOption
from wherefrom.evaluation.config import Setting
from wherefrom.evaluation.travel import SCRIPT, check_classes, modules_of
from wherefrom.method import lookup
from wherefrom.metric.names import metric_of

OWN = '''
import torch
from torch import nn
from wherefrom.method.base import Scores, method
from wherefrom.method.citations import Paper
from wherefrom.metric.base import Part, metric


@method("lengths", idea="Lengths", paper=Paper("Me", 2026, "Lengths", "here"), kind="scores", needs={"gradient"},
        checks=set(), class_specific=True)
def lengths(output):
    """How long a token's name is."""
    scores = torch.zeros(output.mask.shape, dtype=torch.float64)
    for row, sentence in enumerate(output.trace.batch.sentences):
        scores[row, : len(sentence)] = torch.tensor([float(len(token)) for token in sentence.tokens])
    return Scores(scores)


@metric("largest", better="")
def largest(case, asked):
    """The largest score."""
    yield Part(None, float(case.explanation.scores.max()))


class Head(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.out = encoder, nn.Linear(24, 3)

    def forward(self, input_ids=None, attention_mask=None):
        return self.out(self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[:, 0])
'''
SCRIPT_TEXT = """
import inspect
import json
import own
import tiny
import torch
import wherefrom

if __name__ == "__main__":
    torch.manual_seed(0)
    model = own.Head(tiny.model(task="encoder")).eval()
    asked = {"methods": ["lengths", "saliency"], "metrics": ["largest"], "shard": 2}
    texts = ["the cat is good", "a bad film", "the keys", "a deep film ."]
    found = [wherefrom.evaluate(texts, model, tiny.tokenizer(), workers=n, **asked) for n in (1, 2)]
    print(json.dumps([[run.mean(name, "largest") for name in asked["methods"]] for run in found]))
"""


@pytest.mark.slow
def test_modules_of_ones_own_are_known_to_workers(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"  # where the script lies, and not where it is run
    folder.mkdir()
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    (folder / "script.py").write_text(SCRIPT_TEXT, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(tiny.__file__).parent)}
    ran = subprocess.run(
        [sys.executable, str(folder / "script.py")], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    one, two = json.loads(ran.stdout.splitlines()[-1])
    assert one == pytest.approx(two)
    assert one[0] == 5  # [CLS]


class Local(nn.Module):
    def forward(self, input_ids: Any) -> Any:
        return input_ids


def test_what_no_other_process_can_import_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    check_classes(tiny.model())
    check_classes("wherefrom/sentiment")
    check_classes(nn.Sequential(Local()))
    inside = type("Inside", (nn.Module,), {"__qualname__": "made.<locals>.Inside"})
    with pytest.raises(InvalidOption, match=r"the class .*Inside. of the model is defined .*leave workers"):
        check_classes(nn.Sequential(inside()))
    monkeypatch.setattr(Local, "__module__", SCRIPT)
    with pytest.raises(InvalidOption, match="the class 'Local' of the model"):
        wherefrom.evaluate(["a film"], nn.Sequential(Local()), methods="saliency", metrics="aopc", workers=2)


def test_modules_that_register_something_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(model="wherefrom/sentiment", methods=("saliency",), metrics=("aopc", "spearman:alti"))
    assert modules_of(setting) == ()
    monkeypatch.setattr(inspect.unwrap(lookup("alti")[0].run), "__module__", "somebodys.own")
    assert modules_of(setting) == ("somebodys.own",)
    monkeypatch.setattr(inspect.unwrap(metric_of("aopc").run), "__module__", SCRIPT)
    with pytest.raises(InvalidOption, match="the metric 'aopc' is defined in the script or notebook that runs"):
        modules_of(setting)
