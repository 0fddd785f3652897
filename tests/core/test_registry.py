"""Names: any spelling finds what was meant, a wrong one is answered with what there is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wherefrom.errors import InvalidOption, WherefromError, WherefromWarning
from wherefrom.method.base import METHODS, method
from wherefrom.method.citations import ABNAR_2020
from wherefrom.metric.base import METRICS
from wherefrom.metric.names import metrics
from wherefrom.registry import Registry


@pytest.fixture
def fruit() -> Registry[int]:
    found: Registry[int] = Registry("fruit")
    found.add("blood-orange", 1, ("Moro",))
    found.add("quince", 2)
    return found


def test_capitals_underscores_and_aliases_find_the_same(fruit: Registry[int]) -> None:
    for name in ("blood-orange", "Blood_Orange", "blood orange", "moro", "MORO"):
        assert fruit.find(name) == fruit[name] == 1
        assert fruit.named(name) == "blood-orange"
        assert name in fruit
    assert list(fruit.items()) == [("blood-orange", 1), ("quince", 2)]
    assert fruit.get("apple") is None


def test_an_unknown_name_is_answered_with_the_nearest_and_with_all(fruit: Registry[int]) -> None:
    with pytest.raises(
        WherefromError, match=r"^unknown fruit 'quinze'; did you mean 'quince'\? expected one of blood-o"
    ):
        fruit.find("quinze")
    with pytest.raises(WherefromError, match=r"^unknown fruit 'morro'; did you mean 'blood-orange'\?"):  # by its alias
        fruit.find("morro")
    with pytest.raises(WherefromError, match=r"^unknown fruit 7; expected one of blood-orange, quince$"):
        fruit.find(7)
    with pytest.raises(KeyError):
        fruit["apple"]


def test_a_name_that_is_taken_is_refused_and_nothing_is_entered(fruit: Registry[int]) -> None:
    with pytest.raises(ValueError, match="the fruit 'quince' is registered twice"):
        fruit.add("quince", 3)
    with pytest.raises(ValueError, match="'medlar' cannot be called 'Quince': that is a name of the fruit 'quince'"):
        fruit.add("medlar", 3, ("Quince",))
    assert list(fruit) == ["blood-orange", "quince"]


def test_packages_add_by_entry_points_at_the_first_lookup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = "[orchard.fruit]\nmedlar = orchard_medlar\nbroken = orchard_broken\n"
    for name, text in {
        "orchard-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: orchard\nVersion: 1.0\n",
        "orchard-1.0.dist-info/entry_points.txt": points,
        "orchard_medlar.py": "import sys\nsys.orchard.add('medlar', 3)\n",
        "orchard_broken.py": "import no_such_module\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    fruit: Registry[int] = Registry("fruit", group="orchard.fruit")
    monkeypatch.setattr("sys.orchard", fruit, raising=False)
    fruit.add("quince", 2)
    with pytest.warns(WherefromWarning, match=r"the fruit 'broken' of orchard is left out: .*no_such_module"):
        assert fruit.find("Medlar") == 3
    assert list(fruit) == ["quince", "medlar"]


CELL = """
from wherefrom.method import method
from wherefrom.method.citations import ABNAR_2020
from wherefrom.metric.base import metric

@method("vn", symbols=("{symbol}",), idea="a cell", paper=ABNAR_2020, needs={{"attention"}}, checks=set())
def {function}(layer):
    "{summary}"
    return layer.attention.mean(1)

@metric("own-top")
def {function}_top(case, asked):
    "{summary}"
"""


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert metrics()  # all are registered before the registry is copied
    for registry in (METHODS, METRICS):
        for part in ("_entries", "_names"):
            monkeypatch.setattr(registry, part, dict(getattr(registry, part)))


@pytest.mark.usefixtures("kept")
def test_a_cell_that_is_run_again_replaces_what_it_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = ModuleType("__main__")  # without a file, as in IPython
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    for function, symbol, summary in (("vn", "V1", "First."), ("vn", "V2", "Second."), ("better", "V2", "Third.")):
        exec(CELL.format(function=function, symbol=symbol, summary=summary), notebook.__dict__)
        assert METHODS.find(symbol).summary == METRICS.find("own-top").summary == summary
    assert METHODS.get("V1") is None
    with pytest.raises(ValueError, match="the method 'alti' is registered twice"):
        exec(CELL.replace('"vn"', '"alti"').format(function="vn", symbol="V3", summary="Mine."), notebook.__dict__)
    with pytest.raises(ValueError, match="that is a name of the method 'alti'"):
        exec(CELL.format(function="vn", symbol="alti", summary="Mine."), notebook.__dict__)


@pytest.mark.usefixtures("kept")
def test_a_module_that_is_reloaded_replaces_its_own_and_nobody_elses() -> None:
    first, other = ({"__name__": name} for name in ("first", "other"))
    for summary in ("First.", "Second."):
        exec(CELL.format(function="vn", symbol="V1", summary=summary), first)
        assert METHODS.find("vn").summary == summary
    for function, namespace in (("vn", other), ("another", first)):  # another's, or one file's second of that name
        with pytest.raises(ValueError, match="the method 'vn' is registered twice"):
            exec(CELL.format(function=function, symbol="V1", summary="Third."), namespace)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"name": "mine(x)"}, "a method cannot be called 'mine\\(x\\)'; expected a text without any of"),
        ({"name": " "}, "cannot be called"),
        ({"paper": "me"}, "has the paper 'me'; expected a Paper"),
        ({"needs": "values"}, "needs 'values'; expected a set of words"),
        ({"checks": None}, "checks None; expected a set of words"),
        ({"kind": "vector"}, "kind='vector'; expected 'map' or 'scores'"),
        ({"symbols": "M"}, "symbols='M'; expected a list of words"),
    ],
)
def test_a_method_that_could_not_be_called_is_not_registered(odd: dict[str, Any], said: str) -> None:
    """It would be found out at its first use, or in the list of all methods."""
    usual: dict[str, Any] = {"name": "mine", "idea": "mine", "paper": ABNAR_2020, "needs": set(), "checks": set()}
    known = len(METHODS)
    with pytest.raises(InvalidOption, match=said):
        method(**{**usual, **odd})(lambda layer: layer.attention)
    assert len(METHODS) == known
    method(**{**usual, "needs": ["attention"]})(lambda layer: layer.attention)  # a list does, too
    assert METHODS.find("mine").needs == {"attention"}
