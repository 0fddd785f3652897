"""A remark stands in the heading where all explanations under it have it, and else with its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

import wherefrom
from browser import expect
from wherefrom.result.comparison import Comparison
from wherefrom.view.html import document, fragment
from wherefrom.view.terminal import show

LOGITS = "the sum of the logits of 2 tokens"
ALL = "said of both"


def compared(*methods: str) -> Comparison:
    found = wherefrom.compare("Paris is", model="wherefrom/lm", target=" a city", methods=list(methods))
    assert [LOGITS in each.remarks for each in found.values()] == [name == "cp-lrp" for name in methods]
    every = {name: replace(each, notes=[ALL, *each.notes]) for name, each in found.items()}
    return Comparison(every)


@pytest.mark.parametrize("methods", [("cp-lrp", "gradient-x-input"), ("gradient-x-input", "cp-lrp")])
def test_in_the_terminal(methods: tuple[str, str]) -> None:
    said = StringIO()
    show(list(compared(*methods).values()), console=Console(file=said, width=200, no_color=True))
    lines = [line.strip() for line in said.getvalue().splitlines()]
    assert (lines.count(LOGITS), lines.count(ALL)) == (1, 1)
    titles = {name: next(i for i, line in enumerate(lines) if line.startswith(name)) for name in methods}
    assert lines.index(LOGITS) == titles["cp-lrp"] + 1
    assert lines.index(ALL) < min(titles.values())


@pytest.mark.parametrize("methods", [("cp-lrp", "gradient-x-input"), ("gradient-x-input", "cp-lrp")])
def test_where_no_script_runs(methods: tuple[str, str]) -> None:
    static = fragment(compared(*methods))
    assert static.count(f"<small>{LOGITS}</small>") == 1
    assert static.count(f"<small>{ALL}</small>") == 1
    before = static[: static.index(f"<small>{LOGITS}</small>")]
    assert before.rindex("<b>cp-lrp") > before.rfind("<b>gradient-x-input")
    assert f"<small>{ALL}</small>" in before[: before.index("<b>")]


@pytest.mark.parametrize("methods", [("cp-lrp", "gradient-x-input"), ("gradient-x-input", "cp-lrp")])
def test_in_the_viewer(opened: Callable[..., Any], methods: tuple[str, str]) -> None:
    page = opened(document(compared(*methods)))
    expect(page.locator(".head p", has_text=ALL)).to_have_count(1)
    expect(page.locator(".head p", has_text=LOGITS)).to_have_count(0)
    expect(page.locator(".card p", has_text=ALL)).to_have_count(0)
    card = page.locator(".card").nth(methods.index("cp-lrp"))
    expect(card.locator("p", has_text=LOGITS)).to_have_count(1)
    expect(page.locator(".card p", has_text=LOGITS)).to_have_count(1)
