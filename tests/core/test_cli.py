"""The command line, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tiny
import whence
from whence.cli import app
from whence.explanation import Explanation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint on disk, as `save_pretrained` writes it."""
    path = tmp_path_factory.mktemp("model")
    tiny.model(id2label={0: "bad", 1: "so-so", 2: "good"}, label2id={"bad": 0, "so-so": 1, "good": 2}).save_pretrained(
        path
    )
    tiny.tokenizer().save_pretrained(path)
    return str(path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def whence_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whence", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", **environment},
        check=False,
    )


def test_explain_prints_scores_to_a_pipe(folder: str) -> None:
    out = run("explain", "a deep film .", "--model", folder)
    found = whence.explain("a deep film .", folder)
    assert f"predicts {found.prediction} ({found.probabilities[found.prediction]:.3f})" in out
    assert f"film {found.scores[3]:.3f}" in out
    assert "read at: first token [CLS]" in out


def test_explain_as_json(folder: str) -> None:
    out = run("explain", "a deep film .", "-m", folder, "--method", "attention", "--target", "good", "--json")
    found = Explanation.from_dict(json.loads(out))
    expected = whence.explain("a deep film .", folder, method="attention", target="good")
    assert np.array_equal(found.maps, expected.maps)
    assert found.target.label == "good"


def test_layers_words_position_head_and_pair(folder: str) -> None:
    out = run("explain", "a meaningful film", "-m", folder, "--layers", "--words", "--position", "-1", "--head", "1")
    assert "meaningful" in out
    assert "read at: given [SEP]" in out
    assert "head=1" in out
    # Once in the table of layers, once in the grid of maps (one line of three maps).
    assert len([line for line in out.splitlines() if line.strip().startswith("meaningful")]) == 2
    assert "[SEP]" in run("explain", "a film", "--pair", "is good", "-m", folder)


@pytest.mark.parametrize("suffix", ["json", "npz", "html"])
def test_save(folder: str, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"out.{suffix}"
    assert f"written to {file}" in run("explain", "a film", "-m", folder, "--save", str(file)).replace("\n", "")
    assert file.stat().st_size > 100


def test_compare(folder: str) -> None:
    out = run("compare", "a deep film .", "-m", folder, "--methods", "attention, rollout", "--layers")
    assert out.index("attention") < out.index("rollout")
    data = json.loads(run("compare", "a deep film .", "-m", folder, "--json"))
    assert list(data["explanations"]) == ["raw-attention", "attention-rollout"]


def test_methods_lists_every_name() -> None:
    out = whence_process("methods", COLUMNS="200").stdout
    for each in whence.methods():
        assert each.name in out
        assert all(symbol in out for symbol in each.symbols)
        assert each.paper.short in out
    assert "attention-rollout" in out


def test_an_error_is_one_sentence_without_a_traceback(folder: str) -> None:
    result = whence_process("explain", "a film", "--model", folder, "--method", "nonsense")
    assert result.returncode == 2
    assert result.stderr.startswith("error: unknown method 'nonsense'")
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_colour_only_where_it_is_wanted(folder: str) -> None:
    plain = whence_process("explain", "a film", "-m", folder, NO_COLOR="1", FORCE_COLOR="1")
    assert "\x1b[48" not in plain.stdout
    coloured = whence_process("explain", "a film", "-m", folder, FORCE_COLOR="1", COLORTERM="truecolor", TERM="xterm")
    assert "\x1b[" in coloured.stdout
    assert "48;2;" in coloured.stdout  # a 24-bit ground
    fewer = whence_process("explain", "a film", "-m", folder, FORCE_COLOR="1", COLORTERM="", TERM="xterm-256color")
    assert "48;5;" in fewer.stdout


def test_help_is_instant_and_import_is_light() -> None:
    """Neither loads torch or transformers; times are left to `bench/startup.py`."""
    check = (
        "import sys, whence, whence.cli; whence.__version__; "
        "print(sorted(m for m in ('torch', 'transformers', 'scipy', 'numpy', 'pyarrow') if m in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
    assert "explain" in whence_process("--help").stdout


def test_the_public_names_are_all_there() -> None:
    for name in whence.__all__:
        assert getattr(whence, name) is not None
    assert set(whence.__all__) <= set(dir(whence))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        whence.nonsense  # noqa: B018


def test_a_missing_extra_is_named() -> None:
    from whence.extras import need

    with pytest.raises(whence.WhenceError, match=r"pip install 'whence\[plot\]'"):
        need("a_package_that_is_not_there", extra="plot")
    assert need("json", extra="plot").loads("1") == 1
