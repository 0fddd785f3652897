"""The command line, as a user types it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app, batch, main
from wherefrom.cli.evaluate import resumable
from wherefrom.result.explanation import Explanation


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


@dataclass
class Outcome:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The program from its very beginning, in this process: arguments, environment, exit status."""

    def go(*arguments: str, **environment: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["wherefrom", *arguments])
        for name, value in {"COLUMNS": "100", **environment}.items():
            monkeypatch.setenv(name, value)
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return go


@pytest.mark.filterwarnings("default::wherefrom.errors.WherefromWarning")
def test_a_warning_is_one_line_of_ours(folder: str, tmp_path: Path, typed: Callable[..., Outcome]) -> None:
    data = tmp_path / "data.csv"
    data.write_text("text\nthe [MASK] is good\n", encoding="utf-8")
    asked = ("--data", str(data), "--model", folder, "--methods", "attention", "--metrics", "aopc")
    found = typed("evaluate", *asked, "--out", str(tmp_path / "run"), COLUMNS="400")
    assert found.stderr.startswith("warning: 1 of the 1 texts hold [MASK], and ")
    assert "WherefromWarning" not in found.stderr


@pytest.mark.filterwarnings("default::wherefrom.errors.WherefromWarning")
def test_rows_left_out_are_told_once(folder: str, tmp_path: Path, typed: Callable[..., Outcome]) -> None:
    data = tmp_path / "data.csv"
    data.write_text(f"text\na good film\n{'good ' * 50}\n", encoding="utf-8")
    asked = ("--data", str(data), "--model", folder, "--methods", "attention", "--metrics", "aopc")
    found = typed("evaluate", *asked, "--out", str(tmp_path / "run"), COLUMNS="400")
    assert "1 could not be explained: the text has 52 tokens" in found.stdout
    assert "left out" not in found.stdout + found.stderr


def test_explain_prints_scores_to_a_pipe(folder: str) -> None:
    out = run("explain", "a deep film .", "--model", folder)
    found = wherefrom.explain("a deep film .", folder)
    assert f"predicts {found.prediction} ({found.probabilities[found.prediction]:.3f})" in out
    assert f"film {found.scores[3]:+.3g}" in out
    assert "read at: first token [CLS]" in out


def test_explain_as_json(folder: str) -> None:
    out = run("explain", "a deep film .", "-m", folder, "--method", "attcat", "--target", "good", "--json")
    found = Explanation.from_dict(json.loads(out))
    expected = wherefrom.explain("a deep film .", folder, method="attcat", target="good")
    assert np.array_equal(found.layer_scores, expected.layer_scores)
    assert found.target.label == "good"


def test_layers_words_position_head_and_pair(folder: str) -> None:
    out = run("explain", "a meaningful film", "-m", folder, "--layers", "--position", "-1", "--head", "1")
    assert "meaningful" in out
    assert "read at: given [SEP]" in out
    assert "head=1" in out
    # Once in the table of layers, once in the grid of maps (one line of three maps).
    assert len([line for line in out.splitlines() if line.strip().startswith("meaningful")]) == 2
    assert "[SEP]" in run("explain", "a film", "--pair", "is good", "-m", folder)


@pytest.mark.parametrize("suffix", ["json", "npz", "html"])
def test_save_writes_every_kind_of_file(folder: str, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"out.{suffix}"
    assert f"written to {file}" in run("explain", "a film", "-m", folder, "--save", str(file)).replace("\n", "")
    assert file.stat().st_size > 100


def test_pictures_are_saved(folder: str, tmp_path: Path) -> None:
    for command, chosen, kind in (("explain", ["--layers"], "layers"), ("compare", ["--kind", "tokens"], "tokens")):
        file = tmp_path / f"{command}.svg"
        method = "attention" if command == "explain" else "attention,alti"
        run(command, "a film", "-m", folder, "--save", str(file), "-M", method, *chosen)
        found = getattr(wherefrom, command)(
            "a film", folder, None, method.split(",") if "," in method else method
        ).words()
        assert file.read_bytes() == found.plot(kind).file("svg")


def test_html_is_the_viewer(folder: str, tmp_path: Path) -> None:
    for command, name in (("explain", "one.html"), ("compare", "several.html")):
        said = run(command, "the film", "--model", folder, "--html", str(tmp_path / name))
        assert said.strip() == f"written to {tmp_path / name}"
        assert "data-wherefrom" in (tmp_path / name).read_text(encoding="utf-8")


def test_compare_prints_every_method(folder: str) -> None:
    out = run("compare", "a deep film .", "-m", folder, "--methods", "attention, rollout", "--layers")
    assert out.index("attention") < out.index("rollout")
    data = json.loads(run("compare", "a deep film .", "-m", folder, "--json"))
    assert list(data["explanations"]) == ["deeplift", "attcat", "alti", "attention-rollout"]


def test_methods_lists_every_name(typed: Callable[..., Outcome]) -> None:
    out = typed("methods", COLUMNS="200").stdout
    for each in wherefrom.methods():
        assert each.name in out
        assert all(symbol in out for symbol in each.symbols)
        assert each.paper.short in out
    assert "attention-rollout" in out


def test_one_method_is_told_in_full() -> None:
    out = run("methods", "N_Enc")
    assert out.startswith("globenc: ")
    assert "options: normalize=False" in out
    assert "    N_Enc      =  ‖g" in out  # the formula, in line with those above it
    assert "    N_ResLN    =  ‖g" in out
    assert "GlobEnc: Quantifying Global Token Attribution" in out.replace("\n", " ")
    assert run("methods", "rollout").startswith("attention-rollout = attention-fixed-residual, rollout")


def test_options_of_a_method(folder: str, typed: Callable[..., Outcome]) -> None:
    options = ["-O", "metric=l2", "-O", "budget=1000"]
    found = json.loads(run("explain", "a film", "-m", folder, "-M", "alti", *options, "--json"))
    assert found["options"] == {"metric": "l2", "budget": 1000}
    assert found["defaults"] == {"at": None}
    result = typed("explain", "a film", "-m", folder, "-M", "alti", "-O", "metric")
    assert "cannot read the option 'metric'; expected NAME=VALUE" in result.stderr.replace("\n", " ")
    result = typed("explain", "a film", "-m", folder, "-O", "head=1")
    assert "'head' is not an option of a method" in result.stderr
    result = typed("explain", "a film", "-m", folder, "--position", "²")
    assert "unknown position '²'" in result.stderr


def test_an_error_is_one_sentence_without_a_traceback(folder: str, typed: Callable[..., Outcome]) -> None:
    result = typed("explain", "a film", "--model", folder, "--method", "nonsense")
    assert result.returncode == 2
    assert result.stderr.startswith("error: unknown method 'nonsense'")
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_errors_name_the_options_of_the_command(folder: str, typed: Callable[..., Outcome]) -> None:
    for arguments, said in (
        (("--from-layer", "3", "--to-layer", "2"), "--from-layer is 3 and --to-layer 2; expected"),
        (("--method", "attcat", "--position", "1"), "--position chooses the row of a map"),
        (("--method", "attcat", "--save", "x.png", "--kind", "maps"), "show scores (--kind text)"),
        (("--method", "ablation", "-O", "over=pair"), "-O over=pair needs a --foil"),  # an option of the method
        (("--overlap", "2"), "--overlap 2 is of windows, and none are asked for; say --long windows"),
        (("--receptive-field",), "--receptive-field corrects for tokens that see only those before them"),
        (
            ("--task", "encoder", "--method", "saliency"),
            "how similar the text is to another (--similar-to 'another text')",
        ),
    ):
        result = typed("explain", "the film", "--model", folder, *arguments)
        assert result.returncode == 2
        assert said in " ".join(result.stderr.split())


def test_colour_only_where_it_is_wanted(folder: str, typed: Callable[..., Outcome]) -> None:
    coloured = typed("explain", "a film", "-m", folder, FORCE_COLOR="1", COLORTERM="truecolor", TERM="xterm")
    assert "\x1b[" in coloured.stdout
    assert "48;2;" in coloured.stdout  # a 24-bit ground
    # Another text, because rich keeps the codes of a style that it has rendered once.
    fewer = typed("explain", "the good cat", "-m", folder, FORCE_COLOR="1", COLORTERM="", TERM="xterm-256color")
    assert "48;5;" in fewer.stdout
    plain = typed("explain", "a film", "-m", folder, NO_COLOR="1", FORCE_COLOR="1")
    assert "48;" not in plain.stdout


def test_help_is_instant_and_import_is_light() -> None:
    """Neither loads torch or transformers; times are left to `bench/startup.py`."""
    check = (
        "import sys, wherefrom, wherefrom.cli; wherefrom.__version__; "
        "print(sorted(m for m in ('torch', 'transformers', 'scipy', 'numpy', 'pyarrow') if m in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
    shown = subprocess.run([sys.executable, "-m", "wherefrom", "--help"], capture_output=True, text=True, check=True)
    assert "explain" in shown.stdout


def test_the_public_names_are_all_there() -> None:
    for name in wherefrom.__all__:
        assert getattr(wherefrom, name) is not None
    assert {*wherefrom._ROOMS, *wherefrom.__all__} == set(dir(wherefrom))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        wherefrom.nonsense  # noqa: B018


def test_a_missing_extra_is_named() -> None:
    from wherefrom.extras import need

    with pytest.raises(wherefrom.WherefromError, match=r"pip install -e '\.\[plot\]'"):
        need("a_package_that_is_not_there", extra="plot")
    assert need("json", extra="plot").loads("1") == 1


def test_version_is_printed() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"wherefrom {wherefrom.__version__}\n"


# Many texts -----------------------------------------------------------------------------------------------


def test_a_file_of_texts_into_a_table(folder: str, tmp_path: Path) -> None:
    texts = ["a good film", "the cat is bad", "a dog ."]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    (tmp_path / "texts.csv").write_text("id,review\n" + "".join(f"1,{text}\n" for text in texts), encoding="utf-8")
    expected = wherefrom.explain(texts, folder, method="attcat")
    asked = ("explain", "--model", folder, "--method", "attcat")
    for name, more in {"texts.txt": (), "texts.csv": ("--column", "review")}.items():
        out = tmp_path / f"{name}.jsonl"
        said = run(*asked, "--file", str(tmp_path / name), "--out", str(out), *more)
        assert said.startswith("3 explanations written to")
        lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        assert [line["text"] for line in lines] == [each.pieces for each in expected]
        for line, each in zip(lines, expected, strict=True):
            assert np.allclose(line["score"], each.scores, atol=1e-6)
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"a": "a cat", "b": "a dog"}\n', encoding="utf-8")
    run(*asked, "--file", str(pairs), "--column", "a,b", "--out", str(tmp_path / "pairs.csv"), "--words")
    assert (tmp_path / "pairs.csv").read_text(encoding="utf-8").count("\n") == 1 + 7


@pytest.mark.parametrize(
    "wrong", [("--method", "nope"), ("--target", "nope"), ("--column", "nope"), ("-O", "foo=1"), ("--model", "nope")]
)
def test_a_question_that_cannot_be_asked_costs_no_table(
    folder: str, tmp_path: Path, typed: Callable[..., Outcome], wrong: tuple[str, str]
) -> None:
    texts, out = tmp_path / "texts.csv", tmp_path / "scores.csv"
    texts.write_text("text\na cat\n", encoding="utf-8")
    out.write_text("what was there before", encoding="utf-8")
    model = () if "--model" in wrong else ("--model", folder)
    assert typed("explain", *model, *wrong, "--file", str(texts), "--out", str(out)).returncode == 2
    assert out.read_text(encoding="utf-8") == "what was there before"


def test_the_file_that_is_read_is_not_written_over(folder: str, tmp_path: Path, typed: Callable[..., Outcome]) -> None:
    texts = tmp_path / "texts.csv"
    texts.write_text("text\na cat\n", encoding="utf-8")
    (tmp_path / "link.csv").symlink_to(texts)
    for out in (texts, tmp_path / "link.csv"):
        found = typed("explain", "-m", folder, "--file", str(texts), "--out", str(out))
        assert found.returncode == 2
        assert "the file whose texts are read; name another" in " ".join(found.stderr.split())
        assert texts.read_text(encoding="utf-8") == "text\na cat\n"


def test_a_page_has_a_pages_name(folder: str, tmp_path: Path, typed: Callable[..., Outcome]) -> None:
    found = typed("explain", "a cat", "-m", folder, "--html", str(tmp_path / "page.pdf"))
    assert found.returncode == 2
    assert "expected a name ending in .html" in " ".join(found.stderr.split())
    assert not (tmp_path / "page.pdf").exists()


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_what_was_written_before_an_interruption_is_kept_and_counted(
    folder: str, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = wherefrom.explain_stream

    def interrupted(inputs: Any, **asked: Any) -> Iterator[Any]:
        yield from stream(itertools.islice(inputs, 2), **asked)
        raise KeyboardInterrupt

    monkeypatch.setattr(wherefrom, "explain_stream", interrupted)
    texts, out = tmp_path / "texts.txt", tmp_path / f"scores.{ending}"
    texts.write_text("a cat\na dog\na film\n", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        batch.explain_file(texts, "text", out, words=False, model=folder, method="attention")
    assert "stopped; 2 explanations written to" in capsys.readouterr().err
    read = {"csv": pandas.read_csv, "jsonl": partial(pandas.read_json, lines=True), "parquet": pandas.read_parquet}
    assert set(read[ending](out)["input"]) == {0, 1}


@pytest.mark.filterwarnings("default::wherefrom.errors.WherefromWarning")
def test_a_row_that_is_none_is_named_and_counted(folder: str, tmp_path: Path, typed: Callable[..., Outcome]) -> None:
    texts, out = tmp_path / "texts.jsonl", tmp_path / "scores.csv"
    texts.write_text('{"text": "a cat"}\nno json\n{"text": "a dog"}\n', encoding="utf-8")
    found = typed("explain", "-m", folder, "--file", str(texts), "--out", str(out))
    assert found.returncode == 0
    said = " ".join(found.stderr.split())
    assert said.startswith("warning: 1 input was skipped: input 1: row 2 of texts.jsonl is not JSON")
    assert said.count("warning") == 1
    assert {line.split(",")[0] for line in out.read_text(encoding="utf-8").splitlines()} == {"input", "0", "2"}
    texts.rename(tmp_path / "texts.json")
    found = typed("explain", "-m", folder, "--file", str(tmp_path / "texts.json"), "--out", str(out))
    assert found.returncode == 2
    assert "save it as .jsonl" in " ".join(found.stderr.split())


def test_what_was_read_of_a_damaged_table_is_written(
    folder: str, tmp_path: Path, typed: Callable[..., Outcome]
) -> None:
    table, out = tmp_path / "texts.csv", tmp_path / "scores.csv"
    table.write_bytes(b"id, text \n1,a cat\n2,a dog\n" + b"3,a film\n" * 2000 + b"4,\xff\n")
    found = typed("explain", "-m", folder, "--method", "attention", "--file", str(table), "--out", str(out))
    assert found.returncode == 2
    assert "line 2004 is not UTF-8" in " ".join(found.stderr.split())
    numbers = {line.split(",")[0] for line in out.read_text(encoding="utf-8").splitlines()}
    assert {"input", "0", "1", "2"} <= numbers


@pytest.mark.filterwarnings("default::wherefrom.errors.WherefromWarning")
def test_lines_that_cannot_be_explained_are_named(folder: str, tmp_path: Path, typed: Callable[..., Outcome]) -> None:
    (tmp_path / "texts.txt").write_text("a cat\n\na dog\n", encoding="utf-8")
    out = tmp_path / "scores.csv"
    found = typed("explain", "-m", folder, "--file", str(tmp_path / "texts.txt"), "--out", str(out), COLUMNS="200")
    assert found.returncode == 0
    assert found.stderr.startswith("warning: 1 input was skipped: input 1: the text is empty")
    assert {line.split(",")[0] for line in out.read_text(encoding="utf-8").splitlines()} == {"input", "0", "2"}


def test_a_dash_reads_standard_input(folder: str, tmp_path: Path) -> None:
    def piped(text: str, *arguments: str) -> str:
        result = CliRunner().invoke(app, ["explain", *arguments, "-m", folder], input=text, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert Explanation.from_dict(json.loads(piped("a good film\n", "-", "--json"))).texts == ("a good film",)
    for source in (("-",), ("--file", "-")):
        assert "2 explanations" in piped("a cat\na dog\n", *source, "--out", str(tmp_path / "scores.csv"))


def test_wrong_combinations_of_text_file_and_out_are_refused(
    folder: str, tmp_path: Path, typed: Callable[..., Outcome]
) -> None:
    file = tmp_path / "texts.csv"
    file.write_text("text\na cat\n", encoding="utf-8")
    many = ("--file", str(file))
    for said, arguments in {
        "expected either a text or --file": (),
        "--file needs --out": many,
        "--out is for many texts": ("a cat", "--out", "x.csv"),
        "with --file there is no --html": (*many, "--out", str(tmp_path / "x.csv"), "--html", "x.html"),
        "there is no column 'review'; its columns are text": (
            *many,
            "--column",
            "review",
            "--out",
            str(tmp_path / "x.csv"),
        ),
        "there is no file": ("--file", "nowhere.txt", "--out", str(tmp_path / "x.csv")),
        "expected a name ending in .csv, .parquet, .jsonl": (*many, "--out", "x.xlsx"),
    }.items():
        found = typed("explain", *arguments, "-m", folder, COLUMNS="300")
        assert found.returncode == 2
        assert said in found.stderr


def test_an_output_that_cannot_write_every_letter() -> None:
    """As a redirect on Windows: letters by number in place of a traceback, and JSON that can be read again."""
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii"}

    def said(*words: str) -> str:
        call = [sys.executable, "-m", "wherefrom", "explain", "a \N{GRINNING FACE} film \N{MIDDLE DOT}", *words]
        return subprocess.run(call, capture_output=True, text=True, check=True, env=narrow).stdout

    assert r"\U0001f600" in said("--method", "alti")
    assert json.loads(said("--json"))["texts"] == ["a \N{GRINNING FACE} film \N{MIDDLE DOT}"]


def test_an_interruption_says_that_the_command_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for out, said in ((tmp_path / "run", "run: interrupted; the same command, repeated, resumes it"), (None, "")):
        with pytest.raises(KeyboardInterrupt), resumable(out):
            raise KeyboardInterrupt
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["reproduce abnar2020/figure1", "benchmark --rows 4 --methods random"])
def test_a_file_where_a_folder_should_be_is_named(
    folder: str, tmp_path: Path, typed: Callable[..., Outcome], command: str
) -> None:
    file, data = tmp_path / "file", tmp_path / "data.csv"
    file.write_text("x", encoding="utf-8")
    data.write_text(
        "text,label\n" + "".join(f"a {word} film,{word}\n" for word in ("bad", "good") * 3), encoding="utf-8"
    )
    more = ("--model", folder, "--data", str(data)) if command.startswith("benchmark") else ()
    for out in (file, file / "below"):
        found = typed(*command.split(), *more, "--out", str(out))
        assert found.returncode == 2
        assert str(file) in found.stderr.replace("\n", "")
    assert file.read_text(encoding="utf-8") == "x"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["explain", "the cat", "--kind", "map"], "--kind is of a picture"),
        (["explain", "the cat", "--kind", "map", "--save", "x.json"], "--kind is of a picture"),
        (["explain", "-", "--column", "review", "--out", "x.csv"], "leave --column review out"),
        (["explain", "the cat", "--column", "review"], "--column review names a column of --file"),
        (["generate", "the cat", "--seed", "3"], "--seed is of a sampled answer"),
        (["generate", "the cat", "--unit", "wrd"], "unknown --unit 'wrd'"),
        (["train", "test", "m", "texts.csv", "--image", "i", "--by", "half"], "by --by of a classifier of images"),
        (
            ["train", "test", "m", "texts.csv", "--target", "t", "--foil", "f", "--until", "x"],
            "by --until of words for",
        ),
        (["train", "test", "m", "texts.csv", "--good", "g", "--bad", "b", "--pair", "x"], "by --pair of minimal pairs"),
        (["train", "test", "m", "texts.csv", "--frequencies", "x"], "by --frequencies of a classifier of texts"),
        (
            [
                "evaluate",
                "--methods",
                "alti",
                "--metrics",
                "aopc",
                "--data",
                "texts.csv",
                "--split",
                "test",
                "--out",
                "x",
            ],
            "texts.csv is one file",
        ),
    ],
)
def test_what_would_be_left_unread_is_refused(
    typed: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.csv").write_text("text\nthe cat\n", encoding="utf-8")
    found = typed(*arguments)
    assert found.returncode == 2
    assert told in " ".join(found.stderr.split())
    assert [each.name for each in tmp_path.iterdir()] == ["texts.csv"]
