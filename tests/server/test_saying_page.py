"""The page on which a language model speaks, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pairs
import tiny
import wherefrom
from browser import chromium, expect, settle, window
from server.conftest import listening
from wherefrom.model import Model, open_model

TEMPLATE = "{% for turn in messages %}[CLS] {{ turn['content'] }} [SEP] {% endfor %}"


def translator() -> Model:
    return open_model(pairs.model("bart", dtype=torch.float32), tiny.tokenizer())


def speaking(template: str | None) -> Model:
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    tokenizer.chat_template = template
    model = tiny.model("llama", "causal-lm", num_hidden_layers=1, eos_token_id=None, dtype=torch.float32)
    return open_model(model, tokenizer)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with listening({"chat": speaking(TEMPLATE), "plain": speaking(None), "pair": translator()}) as found:
        yield found


@pytest.fixture
def page(address: str) -> Iterator[Any]:
    wrong: list[str] = []
    with chromium() as browser:
        found = window(browser).new_page()
        found.on("pageerror", lambda error: wrong.append(str(error)))
        found.on("request", lambda asked: None if asked.url.startswith((address, "blob:")) else wrong.append(asked.url))
        found.goto(address)
        found.locator("html[data-ready]").wait_for(state="attached")
        yield found
    assert wrong == []


def test_a_chat_is_answered_and_each_word_has_its_sources(page: Any, tmp_path: Path) -> None:
    page.get_by_role("link", name="Let a model speak").click()
    page.locator("html[data-ready]").wait_for(state="attached")
    expect(page.get_by_label("Message")).to_be_visible()
    page.get_by_label("Tokens at most").fill("1000")
    page.get_by_label("Message").fill("the film is good")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("from 1 to 256 tokens")
    for model in ("plain", "chat"):
        page.get_by_label("Model", exact=True).select_option(model)
        expect(page.locator("#error")).to_be_hidden()  # it was about another model
    page.get_by_label("Tokens at most").fill("4")
    page.get_by_role("button", name="Send").click()
    tokens = page.locator(".token.answer")
    expect(tokens).to_have_count(4)
    expect(page.locator("#status")).to_contain_text("Done in")
    assert page.locator(".who").all_inner_texts() == ["user", "answer"]
    tokens.nth(2).focus()
    page.keyboard.press("Enter")
    expect(tokens.nth(2)).to_have_attribute("aria-pressed", "true")
    page.locator(".why").first.click()  # asks the server
    expect(page.locator(".viewer h1")).to_contain_text("rather than")
    for key, step in (("ArrowRight", 3), ("ArrowLeft", 2)):  # also where the button that was clicked is gone
        page.keyboard.press(key)
        expect(tokens.nth(step)).to_have_attribute("aria-pressed", "true")
    listed = {*page.locator(".others .name").all_inner_texts(), tokens.nth(2).inner_text().strip()}
    page.get_by_label("Another word").fill(
        min({"cat", "dog", "film", "good", "the", "is", "very", "deep", "not"} - listed)
    )
    page.keyboard.press("Enter")
    typed = page.locator(".why[title='Key 7']")  # after the six that were likeliest
    expect(typed).to_have_attribute("aria-pressed", "true")
    for pressed in ("false", "true"):
        tokens.nth(2).press("7")
        expect(typed).to_have_attribute("aria-pressed", pressed)
    tokens.nth(2).press("8")  # where nothing is listed
    expect(typed).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Another word").fill("no such word")
    page.keyboard.press("Enter")
    expect(page.locator(".live")).to_contain_text("That did not work")
    expect(page.get_by_label("Another word")).to_have_value("no such word")  # to be mended, not typed again
    expect(page.get_by_label("Another word")).to_be_focused()
    with page.expect_download() as caught:
        page.get_by_role("button", name="Share as a file").click()
    caught.value.save_as(tmp_path / "shared.html")
    shared = (tmp_path / "shared.html").read_text(encoding="utf-8")
    assert re.search(r"<title>[^<]*film[^<]* · wherefrom", shared)
    assert '"format":"wherefrom.view.generation"' in shared
    # The chat goes on, after a reload too; and begins anew.
    page.reload()
    page.locator("html[data-ready]").wait_for(state="attached")
    expect(tokens).to_have_count(4)
    expect(page.locator(".viewer h1")).to_contain_text("rather than")  # asked anew, as the address says
    page.get_by_label("Message").fill("is it ?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".who")).to_have_text(["user 1", "assistant", "user 2", "answer"])
    page.get_by_label("Model").select_option("plain")
    expect(page.get_by_role("button", name="New chat")).to_be_hidden()
    page.get_by_role("textbox", name="Prompt").fill("the dog")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(".who")).to_have_count(0)
    expect(tokens).to_have_count(4)
    expect(page.locator("#status")).to_contain_text("Done in")
    page.get_by_role("link", name="Explain a text").click()
    page.get_by_role("link", name="Let a model speak").click()
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("the dog")  # and back: what was asked stands there
    expect(page.get_by_label("Model")).to_have_value("plain")
    expect(tokens).to_have_count(4)


def test_what_is_typed_while_a_model_answers_stays(page: Any, address: str) -> None:
    held: list[Any] = []
    page.goto(f"{address}/generate")
    page.locator("html[data-ready]").wait_for(state="attached")
    page.route("**/api/generate", lambda route: held.append(route))
    message = page.get_by_role("textbox", name="Message")
    message.fill("the film is good")
    page.get_by_label("Tokens at most").fill("2")
    page.get_by_role("button", name="Send").click()
    expect(message).to_have_value("")  # it is sent
    page.get_by_role("button", name="Cancel").click()
    expect(message).to_have_value("the film is good")  # to be sent again
    page.get_by_role("button", name="Send").click()
    message.fill("and the dog")
    until(page, held, 2)
    held[1].continue_()
    expect(page.locator("#status")).to_contain_text("Done in")
    expect(message).to_have_value("and the dog")
    page.get_by_role("button", name="Send").click()
    until(page, held, 3)
    page.get_by_label("Model", exact=True).select_option("plain")  # which has no chat
    page.get_by_role("textbox", name="Prompt").fill("a dog")
    held[2].continue_()
    expect(page.locator("#status")).to_contain_text("Done in")
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("a dog")
    expect(page.get_by_role("button", name="New chat")).to_be_hidden()


def test_a_chat_begun_anew_while_the_model_speaks_is_new_after_a_reload(page: Any, address: str) -> None:
    held: list[Any] = []
    page.goto(f"{address}/generate")
    page.locator("html[data-ready]").wait_for(state="attached")
    page.get_by_label("Tokens at most").fill("2")
    new_chat = page.get_by_role("button", name="New chat")
    page.get_by_role("textbox", name="Message").fill("the film is good")
    page.get_by_role("button", name="Send").click()
    expect(new_chat).to_be_visible()
    page.route("**/api/generate", lambda route: held.append(route))
    page.get_by_role("textbox", name="Message").fill("is it ?")
    page.get_by_role("button", name="Send").click()
    until(page, held, 1)
    new_chat.click()
    held[0].continue_()
    expect(page.locator("#status")).to_contain_text("Done in")
    expect(new_chat).to_be_hidden()
    page.reload()
    page.locator("html[data-ready]").wait_for(state="attached")
    expect(page.locator(".who")).to_have_text(["user 1", "assistant", "user 2", "answer"])  # the old one stands there
    expect(new_chat).to_be_hidden()  # and the next message begins another


def test_an_answer_stays_where_the_next_question_fails_or_is_cancelled(page: Any, address: str) -> None:
    page.goto(f"{address}/generate")
    page.locator("html[data-ready]").wait_for(state="attached")
    page.get_by_label("Tokens at most").fill("2")
    page.get_by_role("textbox", name="Message").fill("the film is good")
    page.get_by_role("button", name="Send").click()
    tokens = page.locator(".token.answer")
    expect(tokens).to_have_count(2)
    expect(page.locator("#status")).to_contain_text("Done in")
    page.get_by_role("textbox", name="Message").fill("the cat " * 50)
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#error")).to_contain_text("reads at most")
    expect(tokens).to_have_count(2)
    expect(page.get_by_role("textbox", name="Message")).to_have_value("the cat " * 50)  # to be made shorter
    page.route("**/api/generate", lambda _route: None)  # which nobody answers
    page.get_by_role("textbox", name="Message").fill("is it ?")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#status")).to_have_text("Cancelled")
    expect(tokens).to_have_count(2)
    expect(page.get_by_role("textbox", name="Message")).to_have_value("is it ?")
    page.reload()
    page.locator("html[data-ready]").wait_for(state="attached")
    expect(tokens).to_have_count(2)
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#results")).to_be_hidden()
    expect(page.locator("#status")).to_be_empty()
    page.reload()
    page.locator("html[data-ready]").wait_for(state="attached")
    expect(page.locator("#results")).to_be_hidden()


# What stands for the server: it says half of an answer, and no more.
HALF_SAID = """() => {
  window.fetch = (_url, { signal }) => Promise.resolve(new Response(new ReadableStream({ start(stream) {
    stream.enqueue(new TextEncoder().encode('{"event": "said", "text": " and then"}\\n'));
    signal.addEventListener("abort", () => stream.error(signal.reason));
  } }), { status: 200, headers: { "content-type": "application/x-ndjson" } }));
}"""


@pytest.mark.parametrize("model", ["plain", "chat"])
@pytest.mark.parametrize("how", ["cancel", "reload"])
def test_an_answer_stays_where_the_next_is_left_in_its_middle(page: Any, address: str, model: str, how: str) -> None:
    page.goto(f"{address}/generate")
    page.locator("html[data-ready]").wait_for(state="attached")
    page.get_by_label("Model", exact=True).select_option(model)
    page.get_by_label("Tokens at most").fill("2")
    page.locator("#text").fill("the film is good")
    page.locator("#explain").click()
    expect(page.locator("#status")).to_contain_text("Done in")
    shown = page.locator(".viewer .token").all_inner_texts()
    page.evaluate(HALF_SAID)
    page.locator("#text").fill("is it ?")
    page.locator("#explain").click()
    expect(page.locator("#said")).to_have_text(" and then")
    if how == "cancel":
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#status")).to_have_text("Cancelled")
        expect(page.locator("#stream")).to_have_text(re.compile(r"Not explained: is it \?\s+and then"))
        expect(page.locator(".viewer .token")).to_have_text(shown)
        expect(page.locator("#text")).to_have_value("is it ?")
    page.reload()
    page.locator("html[data-ready]").wait_for(state="attached")
    expect(page.locator(".viewer .token")).to_have_text(shown)
    expect(page.locator("#text")).to_have_value("is it ?")  # to be asked again
    page.locator("#explain").click()
    expect(page.locator("#status")).to_contain_text("Done in")
    who = ["user 1", "assistant", "user 2", "answer"] if model == "chat" else []
    expect(page.locator(".who")).to_have_text(who)
    expect(page.locator(".viewer .token")).not_to_have_text(shown)
    expect(page.locator("#stream")).to_be_hidden()
    page.reload()
    page.locator("html[data-ready]").wait_for(state="attached")
    expect(page.locator(".who")).to_have_text(who)
    expect(page.locator("#text")).to_have_value("" if model == "chat" else "is it ?")


@pytest.mark.parametrize("path", ["/", "/generate"])
def test_nothing_is_asked_before_the_page_knows_the_models(page: Any, address: str, path: str) -> None:
    held: list[Any] = []
    page.route("**/api/models", lambda route: held.append(route))
    page.goto(f"{address}{path}")
    until(page, held, 1)
    expect(page.locator("#explain")).to_be_disabled()
    held[0].continue_()
    expect(page.locator("#explain")).to_be_enabled()


def test_an_answer_that_ends_in_its_middle_is_said_to(page: Any, address: str) -> None:
    page.goto(f"{address}/generate")
    page.locator("html[data-ready]").wait_for(state="attached")
    cut = '{"event": "said", "text": " and then"}\n'
    page.route("**/api/generate", lambda route: route.fulfill(body=cut, content_type="application/x-ndjson"))
    page.locator("#text").fill("is it ?")
    page.locator("#explain").click()
    expect(page.locator("#error")).to_contain_text("The server stopped in the middle of its answer")
    expect(page.locator("#said")).to_have_text(" and then")
    expect(page.locator("#status")).to_be_empty()


def until(page: Any, held: list[Any], count: int) -> None:
    """So many requests have come."""
    while len(held) < count:
        page.wait_for_timeout(20)


@pytest.mark.parametrize(("model", "field"), [("plain", "Prompt"), ("chat", "Message")])
def test_a_question_that_was_not_answered_yet_stands_after_a_reload(page: Any, model: str, field: str) -> None:
    page.get_by_role("link", name="Let a model speak").click()
    page.locator("html[data-ready]").wait_for(state="attached")
    page.route("**/api/generate", lambda _route: None)  # which nobody answers
    page.get_by_label("Model", exact=True).select_option(model)
    page.get_by_role("textbox", name=field).fill("is the dog good ?")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Cancel").wait_for()
    page.reload()
    expect(page.get_by_role("textbox", name=field)).to_have_value("is the dog good ?")
    expect(page.get_by_label("Model", exact=True)).to_have_value(model)
    expect(page.locator("#results")).to_be_hidden()


def test_a_translation_is_written_or_given_and_its_source_lights_up(page: Any, address: str) -> None:
    page.goto(f"{address}/generate")
    page.locator("html[data-ready]").wait_for(state="attached")
    expect(page.get_by_role("textbox", name="Target")).to_be_hidden()
    page.get_by_label("Model").select_option("pair")
    expect(page.get_by_label("Method")).to_have_value("alti")
    page.get_by_label("Tokens at most").fill("3")
    page.get_by_label("Source").fill("the film is good")
    page.get_by_role("button", name="Write").click()
    tokens = page.locator(".token.answer")
    expect(tokens).to_have_count(3)
    expect(page.locator("#status")).to_contain_text("Done in")
    page.get_by_role("textbox", name="Target").fill("the dog is not good")
    expect(page.get_by_label("Tokens at most")).to_be_disabled()
    page.get_by_label("Method").select_option("attn-lrp")
    page.get_by_role("button", name="Explain").click()
    expect(tokens).to_have_count(7)  # with [CLS] and [SEP]
    assert page.locator(".who").all_inner_texts() == ["source", "target"]
    tokens.nth(2).click()
    settle(page)
    grounds = page.locator(".token").evaluate_all("all => all.map(each => each.style.background)")
    assert any(grounds[:6])
    expect(page.locator(".readout .share")).to_contain_text("from the source")
    share = int("".join(filter(str.isdigit, page.locator(".readout .share").inner_text())))
    said = wherefrom.generate("the film is good", translator(), method="attn-lrp", target="the dog is not good")
    assert share == pytest.approx(100 * said.source_contribution[2], abs=1)
    expect(page.locator(".picture figcaption")).to_contain_text("how much comes from the source")
    page.locator(".why").first.click()  # asks the server
    expect(page.locator(".viewer h1")).to_contain_text("rather than")
    # What is wrong with the form does not take the answer away, which nothing else keeps; only "Done in" goes.
    page.locator("#text").fill(" ")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("alert")).to_contain_text("no source yet")
    expect(page.locator("#status")).to_be_empty()
    expect(tokens).to_have_count(7)
    page.locator("#text").fill("the film " * 300)
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("alert")).to_contain_text("tokens")
    expect(tokens).to_have_count(7)
    # The other page compares methods on a target that is given.
    page.goto(address)
    page.locator("html[data-ready]").wait_for(state="attached")
    page.get_by_label("Compare with").select_option("model")
    assert page.locator("#other-model option").all_inner_texts() == ["chat", "plain"]  # which read a text alone
    page.get_by_label("Model", exact=True).select_option("pair")
    expect(page.locator("#compare [value=model]")).to_be_disabled()
    expect(page.get_by_label("Compare with")).to_have_value("")
    page.get_by_label("Text", exact=True).fill("the film is good")
    page.get_by_role("button", name="Explain", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("no target text yet")
    page.get_by_label("Explained").fill("the dog")
    page.get_by_role("button", name="Explain", exact=True).click()
    expect(page.locator("#status")).to_contain_text("Done in")
    expect(page.locator(".card h2", has_text="alti")).to_be_visible()
    labels = page.locator(".viewer h1 .label").all_inner_texts()
    assert labels
    assert not [each for each in labels if "dog" in each]  # the phrase is no rival of its first token
    expect(page.locator(".evidence code").first).to_have_text("evaluate")  # no backticks


@pytest.mark.slow
def test_without_a_language_model_the_page_says_so() -> None:
    with listening({"tiny": open_model(tiny.model(), tiny.tokenizer())}) as address, chromium() as browser:
        page = window(browser).new_page()
        page.goto(address)
        page.locator("html[data-ready]").wait_for(state="attached")
        expect(page.get_by_role("link", name="Let a model speak")).to_be_hidden()
        page.goto(f"{address}/generate")
        expect(page.get_by_role("alert")).to_contain_text("name a language model or a translator at the start")
        expect(page.get_by_role("button", name="Go on")).to_be_disabled()
