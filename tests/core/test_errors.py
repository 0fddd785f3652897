"""The tree of errors: as its docstring draws it, each with a code of its own, each raised somewhere."""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wherefrom
from wherefrom import errors
from wherefrom.errors import WherefromError

SOURCE = Path(errors.__file__).parent


def _tree(root: type[WherefromError], before: str = "") -> Iterator[tuple[str, type[WherefromError]]]:
    """Every class below a root, as the lines of a tree."""
    children = root.__subclasses__()
    for child in children:
        last = child is children[-1]
        yield f"{before}{'└── ' if last else '├── '}{child.__name__}", child
        yield from _tree(child, before + ("    " if last else "│   "))


EVERY = [WherefromError, *(each for _, each in _tree(WherefromError))]


def test_the_docstring_draws_the_tree_and_names_the_codes() -> None:
    drawn = re.findall(r"^    (\S.*?\w) {2,}([a-z-]+) {2,}\S", errors.__doc__ or "", re.MULTILINE)
    found = [("WherefromError", WherefromError), *_tree(WherefromError)]
    assert drawn == [(line, each.code) for line, each in found]


def test_every_error_has_a_code_of_its_own() -> None:
    assert len({each.code for each in EVERY}) == len(EVERY)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", each.code) for each in EVERY)
    assert all("code" in vars(each) and each.__doc__ for each in EVERY)


def test_every_error_is_raised_somewhere_and_none_without_its_kind() -> None:
    made: dict[str, list[str]] = {each.__name__: [] for each in EVERY}
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in made:
                made[node.func.id].append(f"{file.relative_to(SOURCE)}:{node.lineno}")
    assert made.pop("WherefromError") == []
    assert [name for name, places in made.items() if not places] == []


@pytest.mark.parametrize("kind", EVERY, ids=lambda each: each.__name__)
def test_an_error_comes_back_from_another_process_as_it_was(kind: type[WherefromError]) -> None:
    found = pickle.loads(pickle.dumps(kind("no such thing; expected another")))
    assert type(found) is kind
    assert str(found) == "no such thing; expected another"
    assert isinstance(found, ValueError)


def test_the_package_gives_the_root_and_the_room_gives_the_rest() -> None:
    found = "import wherefrom; print(wherefrom.errors.TooLong.code, wherefrom.WherefromError.code)"
    said = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["too-long", "error"]


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (errors.UnknownName, {"method": "attcatt"}),
        (errors.InvalidOption, {"method": "integrated-gradients", "n_steps": "many"}),
        (errors.InvalidOption, {"layers": (3, 1)}),
        (errors.InvalidTarget, {"target": "sideways"}),
        (errors.InvalidInput, {"inputs": ""}),
        (errors.TooLong, {"inputs": "film " * 600}),
        (errors.UnknownName, {"model": "wherefrom/none"}),
        (errors.UnknownName, {"model": "./nothing/here"}),
        (errors.UnsupportedModel, {"model": "."}),
    ],
)
def test_what_is_wrong_in_a_call_has_its_kind(kind: type[WherefromError], asked: dict[str, object]) -> None:
    call: dict[str, object] = {"inputs": "a deep and meaningful film .", **asked}
    with pytest.raises(WherefromError) as raised:
        wherefrom.explain(**call)  # type: ignore[arg-type]
    assert type(raised.value) is kind, raised.value


def test_inputs_that_fail_alike_keep_their_kind() -> None:
    with pytest.raises(errors.TooLong):
        wherefrom.explain(["film " * 600, "a film", "film " * 700])
    with pytest.raises(errors.InvalidInput) as mixed:
        wherefrom.explain(["film " * 600, ""])
    assert type(mixed.value) is errors.InvalidInput


def test_the_documentation_lists_every_error_with_its_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (?:&emsp;)?`(\w+)` \| `([a-z-]+)` \|", page, re.MULTILINE)
    assert listed == [(each.__name__, each.code) for each in EVERY]
