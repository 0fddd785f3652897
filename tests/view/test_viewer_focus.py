"""What hears the keys in the viewer, and what choosing a head brings with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tiny
import wherefrom
from browser import expect, settle
from wherefrom.result.explanation import Explanation
from wherefrom.view.html import document

Open = Callable[..., Any]
TEXT = "Meaningful, the deep film!"


@pytest.fixture(scope="module")
def one() -> Explanation:
    return wherefrom.explain(TEXT, tiny.model(), tiny.tokenizer(), head="all")


def in_focus(page: Any) -> str:
    """What hears the keys: a token by its text, a picture by its class."""
    return page.evaluate("""() => {
        let at = document.activeElement;
        while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
        return at.dataset.token ? at.textContent : at.closest(".picture")?.className ?? at.tagName;
    }""")


def test_a_key_that_draws_anew_leaves_the_focus_where_it_was(opened: Open, one: Explanation) -> None:
    page = opened(document({"m": one}))
    page.locator(".text .token", has_text="film").click()
    for key in "mwogs":  # a picture more, words, another order, another picture, special tokens
        page.keyboard.press(key)
        settle(page)
        assert in_focus(page) == "film", key
    assert "pin=" in page.url
    page.keyboard.press("Escape")
    settle(page)
    assert "pin=" not in page.url
    page.locator(".picture.map .stage").focus()
    page.keyboard.press("g")
    settle(page)
    assert in_focus(page) == "picture map"
    page.keyboard.press("m")  # which takes it away
    settle(page)
    assert in_focus(page) != "BODY"


@pytest.mark.parametrize("view", ["text", "layers"])
def test_what_is_pointed_at_in_pieces_is_not_looked_for_among_words(opened: Open, view: str) -> None:
    """An error on the page fails every test here: the last piece has a number that no word has."""
    page = opened(
        document({"m": wherefrom.explain("meaningful meaningful film", tiny.model(), tiny.tokenizer(), method="alti")})
    )
    if view == "layers":
        page.keyboard.press("l")
    page.keyboard.press("w")
    settle(page)
    last = page.locator(".text .token", has_text="film")
    last.hover()
    last.focus()
    settle(page)
    for _ in range(2):
        page.keyboard.press("w")
        settle(page)
    expect(page.locator(".text .token", has_text="film")).to_be_visible()


def test_a_head_brings_the_map_that_shows_it(opened: Open, one: Explanation) -> None:
    page = opened(document({"m": one}))
    expect(page.locator(".picture.map")).to_have_count(0)
    page.get_by_label("Head", exact=True).select_option("head 1")
    expect(page.locator(".picture.map")).to_be_visible()
    assert "head=1" in page.url
    page.keyboard.press("h")
    settle(page)
    assert "head=2" in page.url
    other = opened(document({"m": one}), "view=graph")
    other.get_by_label("Head", exact=True).select_option("head 1")
    settle(other)
    expect(other.locator(".picture.map")).to_have_count(0)  # the graph shows it
