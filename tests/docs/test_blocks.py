"""Every block of code in the book runs, one after another on a blank page; of those that cannot, the page says why."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main
from pages import BEFORE, COMMANDS_RUN, DOCS, PAGES, blocks, commands
from typer.testing import CliRunner

from wherefrom.cli import app
from wherefrom.model.families import FAMILIES

pytestmark = pytest.mark.skipif(not (DOCS / "index.md").exists(), reason="the documentation is not beside the tests")
PACKAGES = ("shap", "captum", "lime")  # whose scores a page takes in
QUICK = "docs/faq.md"  # runs by default, the others among the slow tests
ELSEWHERE = ("docs/gallery.md",)  # in tests/view/test_gallery.py
WITH_PYTHON = [page for page in PAGES if page not in ELSEWHERE and any(True for _ in blocks(page, "python"))]
EVERY = [page if page == QUICK else pytest.param(page, marks=pytest.mark.slow) for page in WITH_PYTHON]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="pictures need the extra `plot`")
    monkeypatch.chdir(tmp_path)
    known = dict(FAMILIES)  # a page adds one
    yield
    FAMILIES.clear()
    FAMILIES.update(known)
    pyplot.close("all")


@pytest.mark.filterwarnings("default::wherefrom.errors.WherefromWarning")  # a page shows an input that is skipped
@pytest.mark.parametrize("page", EVERY)
def test_python(page: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    missing = set()
    for block in blocks(page, "python"):
        lacks = {name for name in PACKAGES if f"import {name}" in block.source and not find_spec(name)}
        missing |= lacks
        if block.why is None and not lacks:
            source = "\n" * (block.line - 1) + block.source  # so that a traceback names the line of the page
            exec(compile(source, page, "exec"), names)
    if missing:
        pytest.skip(f"{', '.join(sorted(missing))} not installed: their blocks of the book were left out")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(COMMANDS_RUN)])
def test_commands_run(page: str) -> None:
    Path("texts.txt").write_text(BEFORE.get(page, ""), encoding="utf-8")
    for block in blocks(page, "sh"):
        for command in commands(block.source) if block.why is None else ():
            _, *arguments = shlex.split(command)
            found = CliRunner().invoke(app, arguments, catch_exceptions=False)
            assert found.exit_code == 0, f"{command}\n{found.output}"


def test_commands_are_there_with_their_flags() -> None:
    root = typer.main.get_command(app)
    for page in PAGES:
        for block in blocks(page, "sh"):
            for command in commands(block.source):
                words = shlex.split(command)[1:]
                assert "wherefrom" not in words, f"{page}:{block.line}: two commands on one line"
                where: Any = root
                while isinstance(where, click.Group) or hasattr(where, "commands"):
                    name = next((word for word in words if word in where.commands), None)
                    if name is None:
                        break
                    words.remove(name)
                    where = where.commands[name]
                known = {flag for each in where.params for flag in (*each.opts, *each.secondary_opts)}
                asked = {word.partition("=")[0] for word in words if word.startswith("--")}
                assert asked <= known | {"--help", "--version"}, f"{page}:{block.line}: {command}"


def test_blocks_that_do_not_run_are_few() -> None:
    left = [each for page in PAGES for each in blocks(page, "python") if each.why is not None]
    assert all(each.why for each in left)
    assert len(left) <= 6
