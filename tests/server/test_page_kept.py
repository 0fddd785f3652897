"""What the page keeps of a run: while it runs, after it, until it is forgotten."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from browser import expect
from server.conftest import TEXT, Open, explain, until
from wherefrom.server import handlers


@pytest.mark.slow
def test_the_last_explanations_are_kept(visit: Open) -> None:
    page = visit()
    explain(page, TEXT, ("globenc",))
    explain(page, "a good film", ("attcat",))
    expect(page.locator("#history li b")).to_have_text(["a good film", TEXT])  # written, not only shown
    page.reload()
    page.locator("html[data-ready]").wait_for(state="attached")
    assert page.locator("#history li b").all_inner_texts() == ["a good film", TEXT]
    expect(page.locator("#text")).to_have_value("a good film")  # a reload shows what was shown
    expect(page.locator(".viewer .card h2").first).to_contain_text("attcat")
    page.locator("#history .run").nth(1).click()
    expect(page.locator(".viewer .card h2").first).to_contain_text("globenc")
    expect(page.locator(".evidence")).to_have_count(1)
    expect(page.locator("#text")).to_have_value(TEXT)
    page.get_by_role("button", name="Forget “a good film”").click()
    expect(page.locator("#history li")).to_have_count(1)


@pytest.fixture
def halting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """After how many explanations the server waits for the end of the test."""
    after, over = [1], threading.Event()

    def slow(*given: Any, **named: Any) -> Any:
        for done, each in enumerate(genuine(*given, **named)):
            if done >= after[0]:
                over.wait(60)
            yield each

    genuine = handlers.attempt
    monkeypatch.setattr(handlers, "attempt", slow)
    yield after
    over.set()


@pytest.mark.usefixtures("halting")
def test_cancel_stops_the_work_and_keeps_what_was_done(visit: Open) -> None:
    page = visit()
    page.fill("#text", TEXT)
    page.click("#explain")
    page.locator(".viewer .card").first.wait_for()  # the first is there before the last has begun
    assert page.locator("#progress").is_visible()
    page.click("#cancel")
    page.locator("#status", has_text="Cancelled").wait_for()
    expect(page.locator("#explain")).to_be_enabled()
    for _ in range(2):
        expect(page.locator(".remarks")).to_contain_text("stopped before its end")
        expect(page.locator("#history li b")).to_have_text([TEXT])
        assert 0 < page.locator(".viewer .card").count() < 4
        expect(page.locator("#text")).to_have_value(TEXT)
        page.reload()


def test_a_reload_while_it_runs_loses_nothing_that_had_come(visit: Open, halting: list[int]) -> None:
    page = visit()
    page.fill("#text", TEXT)
    page.click("#explain")
    expect(page.locator("#history li b")).to_have_text([TEXT])
    page.reload()
    expect(page.locator(".viewer .card")).to_have_count(1)
    expect(page.locator(".remarks")).to_contain_text("stopped before its end")
    halting[0] = 0
    page.fill("#text", "a good film")
    page.click("#explain")
    page.locator("#progress").wait_for()
    page.reload()
    expect(page.locator("#text")).to_have_value("a good film")  # of which nothing had come
    expect(page.locator("#history li b")).to_have_text([TEXT])
    page.locator("#history .run").click()
    expect(page.locator("#text")).to_have_value(TEXT)


KEPT = """() => new Promise((done) => {
  indexedDB.open("wherefrom").onsuccess = ({ target: { result: base } }) => {
    base.transaction("kept").objectStore("kept").getAll().onsuccess = ({ target: { result: all } }) => {
      base.close();
      done(all.at(-1)?.payload.explanations.length ?? 0);
    };
  };
})"""


def test_what_comes_right_after_another_is_kept_though_the_next_takes_long(visit: Open, halting: list[int]) -> None:
    halting[0] = 99
    page = visit()
    explain(page, "a good film", ("globenc",))
    halting[0] = 2
    page.fill("#text", TEXT)
    for name in ("attcat", "alti"):
        page.locator("#methods .chip", has_text=re.compile(f"^{name}$")).click()
    page.click("#explain")
    expect(page.locator(".viewer .card")).to_have_count(2)
    until(lambda: page.evaluate(KEPT) == 2)  # wait_for_function takes a promise for true
    page.reload()
    expect(page.locator(".viewer .card")).to_have_count(2)


def test_a_run_that_was_left_for_another_opens_with_all_that_had_come(visit: Open, halting: list[int]) -> None:
    halting[0] = 99
    page = visit()
    explain(page, "a good film", ("globenc",))
    halting[0] = 2
    page.fill("#text", TEXT)
    for name in ("attcat", "alti"):
        page.locator("#methods .chip", has_text=re.compile(f"^{name}$")).click()
    page.click("#explain")
    expect(page.locator(".viewer .card")).to_have_count(2)
    page.locator("#history .run", has_text="a good film").click()
    expect(page.locator("#text")).to_have_value("a good film")
    page.locator("#history .run", has_text=TEXT).click()
    expect(page.locator("#text")).to_have_value(TEXT)
    expect(page.locator(".viewer .card")).to_have_count(2)


def test_a_run_that_was_forgotten_while_it_runs_stays_forgotten(visit: Open, halting: list[int]) -> None:
    halting[0] = 99
    page = visit()
    explain(page, "a good film", ("globenc",))
    halting[0] = 1
    page.fill("#text", TEXT)
    page.locator("#methods .chip", has_text=re.compile("^alti$")).click()
    page.click("#explain")
    page.get_by_role("button", name=f"Forget “{TEXT}”").click()
    expect(page.locator("#history li b")).to_have_text(["a good film"])
    page.click("#cancel")
    page.locator("#status", has_text="Cancelled").wait_for()
    expect(page.locator(".viewer .card")).to_have_count(1)  # it stays on the page
    expect(page.locator("#history li b")).to_have_text(["a good film"])
    page.reload()
    expect(page.locator("#history li b")).to_have_text(["a good film"])
    page.get_by_role("button", name="Forget all").click()
    expect(page.locator("#history li")).to_have_count(0)
