"""The house: which room may import which, and what is loaded when."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "rooms.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="scripts/rooms.py is not beside the tests")

LINES, FUNCTION = 500, 60
# Modules of one name that mean the same in two rooms: a method or a metric as it is registered; a method and the paper
# that it comes from.
SAME_NAME = {"base": {"method", "metric"}} | {
    name: {"method", "papers"} for name in ("alti", "alti_logit", "attn_lrp", "decompx", "value_zeroing")
}
HEAVY = {"torch", "transformers", "tokenizers", "huggingface_hub", "safetensors"}
INSIDES = {"config", "pretrained", "tokenizer", "blocks"}  # of a Model: what Hugging Face made

LIGHT = """
import sys
from pathlib import Path
import numpy as np
from wherefrom import Comparison, Explanation, Explanations
from wherefrom.result.answer import Readout

folder = Path(sys.argv[1])
one = Explanation.from_scores(["good", "film"], [0.9, -0.1])
both = Comparison({"a": one, "b": one})
for ending in ("json", "npz", "html", "csv", "jsonl"):
    one.save(folder / f"one.{ending}")
for ending in ("json", "npz"):
    assert Explanation.load(folder / f"one.{ending}").tokens == one.tokens
both.save(folder / "both.json")
assert list(Comparison.load(folder / "both.json")) == ["a", "b"]
for each in (one, both, Explanations([one])):
    each.show()
    assert each._repr_html_()
one.words(), str(one), repr(one), one.to_dict(), one.to_html(), both.to_html()
heavy = {"torch", "transformers", "matplotlib"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
DRAWN = """
maps, at = np.full((2, 2, 2), 0.5), Readout(0, "given")
mapped = Explanation(tokens=["good", "film"], scores=maps[-1, 0], method="given", maps=maps, readout=at)
one.plot(), one.plot("bars"), both.plot("tokens"), mapped.plot("graph", edges="paths"), one.save(folder / "one.png")
assert not {"torch", "transformers"} & set(sys.modules)
"""


def alone(script: str, folder: Path) -> None:
    """Run a script in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert found.returncode == 0, found.stderr


def test_results_are_saved_loaded_and_shown_without_torch(tmp_path: Path) -> None:
    alone(LIGHT, tmp_path)


def test_results_are_drawn_without_torch(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    alone(LIGHT + DRAWN, tmp_path)


# The graph -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rooms() -> Any:
    spec = importlib.util.spec_from_file_location("rooms_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trees(rooms: Any) -> dict[str, ast.Module]:
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in rooms.modules().items()}


def test_every_room_stands_in_the_order(rooms: Any) -> None:
    found = {rooms.room(module) for module in rooms.modules()} - {rooms.FACADE, "__main__"}
    assert not found - set(rooms.ORDER), "enter it into ORDER of scripts/rooms.py, above all that it imports"


def test_a_room_imports_only_rooms_below_it(rooms: Any) -> None:
    place = {name: number for number, name in enumerate(rooms.ORDER)}
    upward = [
        str(each)
        for each in rooms.within()
        if rooms.room(each.module) in place
        and rooms.room(each.imported) != rooms.FACADE
        and place[rooms.room(each.imported)] > place[rooms.room(each.module)]
    ]
    assert not upward


def test_only_the_command_line_goes_through_the_package_itself(rooms: Any) -> None:
    """Its public names come from all rooms, so that whoever imports it imports everything."""
    through = [each for each in rooms.within() if rooms.room(each.imported) == rooms.FACADE]
    assert not [str(each) for each in through if rooms.room(each.module) != "cli"]


def test_modules_are_imported_by_computed_names_in_four_places_only(trees: dict[str, ast.Module]) -> None:
    """The package's own names, views, what entry points and extras name, and in a worker modules of the caller's:
    nothing else hides from the graph."""
    hidden = set()
    for module, tree in trees.items():
        for node in ast.walk(tree):
            called = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2]
            if called in ("import_module", "__import__") and not isinstance(node.args[0], ast.Constant):
                hidden.add(module)
    assert hidden <= {"wherefrom", "wherefrom.display", "wherefrom.extras", "wherefrom.evaluation.travel"}


def test_views_named_in_the_table_are_views(rooms: Any) -> None:
    from wherefrom.display import VIEWS

    for where in VIEWS.values():
        module, _, function = where.partition(":")
        assert rooms.room(module) == "view"
        defined = ast.parse(rooms.modules()[module].read_text(encoding="utf-8"))
        imported = {alias.name for node in defined.body if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert function in imported | {node.name for node in defined.body if isinstance(node, ast.FunctionDef)}


def test_results_need_numpy_alone(rooms: Any) -> None:
    inside = {"result", *rooms.LIGHT}
    mine = [each for each in rooms.imports() if rooms.room(each.module) == "result"]
    own = [each for each in mine if each.imported.split(".")[0] == rooms.PACKAGE]
    assert not [str(each) for each in own if rooms.room(each.imported) not in inside]
    others = {each.imported.split(".")[0] for each in mine} - {rooms.PACKAGE} - set(sys.stdlib_module_names)
    assert others == {"numpy", "matplotlib", "pandas"}  # the latter two for type checkers alone


@pytest.mark.parametrize("room", ["result", "view", "server", "data"])
def test_rooms_that_know_no_torch(rooms: Any, room: str) -> None:
    mine = [each for each in rooms.imports() if rooms.room(each.module) == room]
    assert not [str(each) for each in mine if each.imported.split(".")[0] in HEAVY]


def test_light_modules_load_no_torch(rooms: Any) -> None:
    light = [each for each in rooms.imports() if rooms.room(each.module) in rooms.LIGHT]
    assert not [str(each) for each in light if each.imported.split(".")[0] in HEAVY]


def test_the_server_looks_inside_no_model(rooms: Any, trees: dict[str, ast.Module]) -> None:
    touched = [
        f"{module}:{node.lineno} touches .{node.attr}"
        for module, tree in trees.items()
        if rooms.room(module) == "server"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in INSIDES
    ]
    assert not touched


# Names and sizes -------------------------------------------------------------------------------------------


def test_no_module_name_means_two_things(rooms: Any) -> None:
    owners = defaultdict(set)
    for module, file in rooms.modules().items():
        if file.stem not in ("__init__", "__main__"):
            owners[file.stem].add(rooms.room(module))
    twice = {name: where for name, where in owners.items() if len(where) > 1}
    assert twice == {name: where for name, where in SAME_NAME.items() if name in twice}


def test_no_class_name_stands_twice(trees: dict[str, ast.Module]) -> None:
    owners = defaultdict(list)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                owners[node.name].append(module)
    assert not {name: where for name, where in owners.items() if len(where) > 1}


def test_files_and_functions_fit_on_a_few_screens(rooms: Any, trees: dict[str, ast.Module]) -> None:
    files = {name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in rooms.modules().items()}
    assert not {name: count for name, count in files.items() if count > LINES}
    every = {name: lines for module, tree in trees.items() for name, lines in functions(module, tree)}
    assert not {name: lines for name, lines in every.items() if lines > FUNCTION}


def functions(module: str, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every function by its module and name, and the lines of its body; what explains it is as long as it has to be."""
    inside = module.partition(".")[2]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = [] if not body else range(body[0].lineno, (body[-1].end_lineno or 0) + 1)
            yield f"{inside}.{node.name}", len(lines)


def test_the_drawing_in_contributing_is_up_to_date(rooms: Any) -> None:
    text = rooms.PAGE.read_text(encoding="utf-8")
    assert rooms.page(text) == text, "run `python scripts/rooms.py`"
