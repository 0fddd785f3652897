"""One set of options: what one call takes, all take where it makes sense, under one name, type and default."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_overloads

import pytest
import typer

import wherefrom
from wherefrom import options
from wherefrom.cli import app
from wherefrom.method.base import HOW
from wherefrom.pipeline.bulk import How
from wherefrom.pipeline.resolution import Wanted

EVERYTHING = frozenset(options.ExplainOptions.__annotations__)
# What each function takes of the whole set; and why the rest makes no sense there.
TAKES: dict[str, frozenset[str]] = {
    "explain": EVERYTHING,
    "explain_stream": EVERYTHING,
    "compare": EVERYTHING,
    "estimate": frozenset(options.EstimateOptions.__annotations__),  # nothing is run: no errors to skip, no progress
    "capture": frozenset(options.ModelOptions.__annotations__) | {"truncate"},  # one pass, of which nothing is made
    # What is asked of a method stands in its name, `alti(layers=[0, 2])`; foils and positions come with the examples.
    "evaluate": frozenset(options.ModelOptions.__annotations__) | {"target", "batch_size", "truncate", "progress"},
    "open_model": frozenset(options.LoadOptions.__annotations__),  # nothing is tokenised
}
OWN = {"evaluate": {"target"}}  # one class for the whole dataset, and no list


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", TAKES)
def test_a_signature_agrees_with_the_set_of_options(name: str) -> None:
    found, reference = _parameters(getattr(wherefrom, name)), _parameters(wherefrom.explain)
    assert found.keys() & EVERYTHING == TAKES[name]
    for option in TAKES[name] - OWN.get(name, set()):
        declared = options.ExplainOptions.__annotations__[option].__forward_arg__
        assert found[option].annotation == declared, option
        assert found[option].default == reference[option].default, option
        assert found[option].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("name", ["explain", "explain_stream"])
def test_overloads_show_every_option(name: str) -> None:
    for overload in get_overloads(inspect.unwrap(getattr(wherefrom, name))):
        found = _parameters(overload)
        assert found.keys() & EVERYTHING == EVERYTHING
        for option in EVERYTHING - {"target"}:
            assert found[option].annotation == options.ExplainOptions.__annotations__[option].__forward_arg__


def test_a_name_may_say_how_its_method_makes_maps() -> None:
    assert set(HOW) == set(options.MapOptions.__annotations__) - {"rows", "keep"}  # of which there is one for all


def test_what_the_pipeline_is_told_are_the_same_options() -> None:
    assert {each.name for each in fields(Wanted)} == set(options.MapOptions.__annotations__)
    assert {each.name for each in fields(How)} == EVERYTHING & {"batch_size", "on_error", "progress", "overlap"}


@pytest.mark.parametrize("name", TAKES)
def test_a_misspelt_option_is_answered_with_the_one_that_was_meant(name: str) -> None:
    wrong = "devise"
    with pytest.raises((TypeError, wherefrom.WherefromError), match="'device'"):
        getattr(wherefrom, name)("a good film", **{wrong: "cpu"})


@pytest.mark.parametrize("name", [name for name, takes in TAKES.items() if "truncate" in takes])
def test_an_option_of_the_wrong_kind_gets_a_sentence(name: str) -> None:
    with pytest.raises(wherefrom.WherefromError, match="truncate='no'; expected True or False"):
        getattr(wherefrom, name)("a good film", truncate="no")


# The command line and the page ---------------------------------------------------------------------------------


ASKED_OTHERWISE = {"layers": {"from_layer", "to_layer"}}
OF_PYTHON = {"model_kwargs", "tokenizer_kwargs", "progress"}  # objects; a terminal shows progress by itself
COMMANDS: dict[str, frozenset[str]] = {
    "explain": EVERYTHING - OF_PYTHON - {"keep", "on_error"},  # --out keeps scores and skips what fails
    "compare": EVERYTHING - OF_PYTHON - {"keep", "on_error", "batch_size"},  # of one text
    "estimate": TAKES["estimate"] - OF_PYTHON - {"keep", "batch_size"},
    "evaluate": TAKES["evaluate"] - OF_PYTHON,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_options_of_its_function(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    found = {each.name: each for each in command.params}
    wanted = {flag for option in COMMANDS[name] for flag in ASKED_OTHERWISE.get(option, {option})}
    shown = {"layers"}  # with a text, or a table: whether every layer is shown
    assert found.keys() & EVERYTHING - shown == wanted - {"from_layer", "to_layer"}
    assert wanted <= found.keys()
    defaults = _parameters(getattr(wherefrom, name))
    for option in wanted & defaults.keys():
        assert found[option].default == defaults[option].default, option


def test_the_page_takes_the_same_options() -> None:
    handlers = pytest.importorskip("wherefrom.server.handlers", reason="the server needs the extra `serve`")
    servers = {*options.ModelOptions.__annotations__, "batch_size", "on_error", "progress"}  # whose model and batches
    found, reference = handlers.Body.model_fields, _parameters(wherefrom.explain)
    assert found.keys() & EVERYTHING == EVERYTHING - servers - {"keep"}  # which the page calls maps
    for option in found.keys() & EVERYTHING:
        assert found[option].default == reference[option].default, option
