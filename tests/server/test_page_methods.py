"""The page's list of methods: which can be chosen, and what it says of the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tiny
from browser import expect, window
from server.conftest import listening
from wherefrom.model import Model, open_model
from wherefrom.server.limits import Limits


@pytest.fixture(scope="module")
def page(browser: Any, models: dict[str, Model]) -> Iterator[Any]:
    """With room for five methods."""
    with listening({name: models[name] for name in ("tiny", "tiny-mlm")}, Limits(methods=5)) as found:
        context = window(browser)
        page = context.new_page()
        page.goto(found)
        page.locator("html[data-ready]").wait_for(state="attached")
        yield page
        context.close()


def test_methods_of_ones_own_choice_outlive_a_change_of_the_model(page: Any) -> None:
    page.select_option("#model", "tiny")
    page.locator("#more").evaluate("it => { it.open = true; }")
    page.locator("#all-methods input[value=saliency]").check()
    page.select_option("#model", "tiny-mlm")
    expect(page.locator("#all-methods input[value=saliency]")).to_be_checked()


def test_no_more_methods_can_be_chosen_than_are_answered(page: Any) -> None:
    page.locator("#more").evaluate("it => { it.open = true; }")
    chosen = page.locator("#all-methods input:checked")
    while chosen.count():
        chosen.first.uncheck()
    for name in ("saliency", "alti", "attcat", "norm"):
        page.locator(f"#all-methods input[value={name}]").check()
    expect(page.locator("#all-methods input[value=globenc]")).to_be_enabled()
    page.locator("#methods button", has_text="deeplift").click()
    other = page.locator("#all-methods label:has(input[value=globenc])")
    expect(other.locator("input")).to_be_disabled()
    expect(other.locator(".why")).to_have_text("5 methods are chosen, the most for one question")
    expect(page.locator("#methods button", has_text="globenc")).to_be_disabled()
    page.locator("#all-methods input[value=saliency]").uncheck()  # what is chosen can be taken back
    expect(other.locator("input")).to_be_enabled()
    expect(other.locator(".why")).to_be_empty()


@pytest.mark.slow
def test_methods_that_are_not_defined_are_grey_and_say_why(browser: Any) -> None:
    with listening({"experts": open_model(tiny.model("mixtral"), tiny.tokenizer())}) as found:
        page = window(browser).new_page()
        page.goto(found)
        page.locator("html[data-ready]").wait_for(state="attached")
        page.locator("summary", has_text="All methods").click()
        off, on = (page.locator(f"#all-methods label:has(input[value={name}])") for name in ("deeplift", "attcat"))
        why = off.locator(".why").inner_text()
        assert why.startswith("not defined on this model: it needs")
        assert off.get_attribute("title") == why
        colours = [each.evaluate("it => getComputedStyle(it).color") for each in (off, on)]
        assert colours[0] != colours[1]
        assert not on.locator(".why").inner_text() + (on.get_attribute("title") or "")
        page.context.close()
