"""The page in a real browser: what a person does with it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from browser import expect, settle
from server.conftest import TEXT, Open, explain


def test_the_page_explains_a_text(visit: Open) -> None:
    page = visit()
    assert page.input_value("#text").startswith("a clever blend")  # ready to go
    page.select_option("#model", "wherefrom/sentiment")
    explain(page, "i really didn't like this movie .")
    viewer = page.locator(".viewer")
    assert viewer.locator("h1").inner_text().startswith("negative")
    assert viewer.locator(".card").count() == 2
    assert "liked" not in viewer.locator(".card").first.inner_text()
    said = page.locator(".evidence p").first.inner_text()
    named = r"Without its top 2 words the probability of “negative” (falls from|does not fall \() ?\d\.\d\d"
    assert re.match(named, said)
    assert "random words it is " in said
    assert page.locator(".evidence svg[role=img]").count() == 2
    assert page.locator(".agreement tbody tr").count() == 2
    rho = float(page.locator(".agreement td[title]").first.inner_text().replace("−", "-"))
    assert -1 <= rho <= 1
    assert "globenc has no signs: with it, magnitudes are compared" in page.locator(".agreement").inner_text()


def test_switch_layer_and_hover(visit: Open) -> None:
    page = visit()
    explain(page, TEXT, ("globenc",))
    card = page.locator(".viewer .card").first
    token = card.locator(".token", has_text="film").first
    before = card.locator(".token").evaluate_all("all => all.map(each => each.style.backgroundColor)")
    slider = page.locator(".viewer input[type=range][aria-label=Layer]")
    slider.focus()
    page.keyboard.press("Home")
    page.locator(".viewer .caption", has_text="0 (0 to ").wait_for()
    settle(page)
    after = card.locator(".token").evaluate_all("all => all.map(each => each.style.backgroundColor)")
    assert before != after
    assert "layer=0" in page.url
    resting = card.locator(".readout").inner_text()
    token.hover()
    settle(page)
    assert card.locator(".readout").inner_text() != resting


def test_compare_two_texts(visit: Open) -> None:
    page = visit()
    page.fill("#text", TEXT)
    page.select_option("#compare", "text")
    assert page.input_value("#other") == TEXT  # to be changed
    page.fill("#other", "the deep film was very bad !")
    explain(page, None, ("globenc",))
    names = page.locator(".viewer .card h2").all_inner_texts()
    assert [name.split("\n")[0] for name in names] == ["globenc · first text", "globenc · second text"]
    said = page.locator(".viewer .head p").all_inner_texts()
    assert [line.split("  ·  ")[0].split(" · ")[0] for line in said] == [TEXT, "the deep film was very bad !"]
    assert page.locator(".evidence").count() == 2


@pytest.mark.slow
def test_compare_two_models(visit: Open) -> None:
    page = visit()
    page.select_option("#compare", "model")
    assert page.input_value("#other-model") == "tiny-mlm"
    explain(page, TEXT, ("globenc", "attcat"))
    assert page.locator(".viewer .card").count() == 3
    remark = page.locator(".remarks").inner_text()
    assert "attcat · tiny-mlm: the text has no [MASK]: put it where the model should predict a word" in remark
    assert "position" not in remark  # a word of Python's
    assert "nothing is predicted here" in page.locator(".evidence").last.inner_text()
    page.select_option("#target", index=2)
    page.fill("#text", "the film is [MASK]")
    page.click("#explain")
    expect(page.locator("#error")).to_contain_text("(tiny-mlm)")  # which of the two has no such target


def test_a_masked_word_and_its_foil(visit: Open) -> None:
    page = visit()
    page.select_option("#examples", label="many teenagers were helping [MASK] .  (Value Zeroing, table 1)")
    assert page.input_value("#model") == "tiny-mlm"
    assert page.input_value("#foil") == "herself"
    page.fill("#text", "the keys of the cat [MASK] good .")
    page.fill("#target", "are")
    page.fill("#foil", "is")
    explain(page, None, ("attcat", "value-zeroing"))
    assert "explained: what [MASK] is made of" in page.locator(".viewer .card", has_text="value-zeroing").inner_text()
    assert "rather than 'is'" in page.locator(".viewer .head").inner_text()
    assert page.locator("#words option").count() > 3
    page.fill("#text", "teenagers were helping ")
    page.click("#mask")
    assert page.input_value("#text") == "teenagers were helping [MASK]"


def test_a_text_without_a_mask_is_told_in_words_of_the_page(visit: Open) -> None:
    page = visit()
    page.select_option("#model", "tiny-mlm")
    page.fill("#text", "the keys are here")
    for chip in page.locator("#methods .chip[aria-pressed=true]").all_inner_texts():
        page.locator("#methods .chip", has_text=re.compile(f"^{chip}$")).click()
    page.locator("#methods .chip", has_text="attcat").click()
    page.click("#explain")
    error = page.locator("#error")
    expect(error).to_contain_text("The text has no [MASK]: put it where the model should predict a word (Insert [MASK]")
    expect(error).to_contain_text("choose methods that need none")
    page.fill("#target", "are")  # which no method explains without a mask
    page.click("#explain")
    expect(error).not_to_contain_text("choose methods")
    page.fill("#text", "the [MASK] are [MASK]")
    page.click("#explain")
    expect(error).to_contain_text("The text has [MASK] 2 times")
    page.fill("#target", "")
    explain(page, "the keys are here", ("attcat", "globenc"))
    expect(page.locator(".card")).to_have_count(1)
    expect(page.locator(".remarks")).to_contain_text("attcat: the text has no [MASK]")


def test_a_mask_can_be_put_in_wherever_one_is_asked_for(visit: Open) -> None:
    page = visit()
    page.select_option("#model", "tiny")
    expect(page.locator("#mask")).to_be_hidden()
    page.fill("#text", "the keys are")
    page.select_option("#compare", "model")
    page.select_option("#other-model", "tiny-mlm")  # which fills in a word, as the first does not
    page.locator("#mask").click()
    expect(page.locator("#text")).to_have_value("the keys are [MASK]")
    page.select_option("#other-model", "tiny-encoder")
    expect(page.locator("#mask")).to_be_hidden()
    page.select_option("#model", "tiny-mlm")
    page.select_option("#compare", "text")
    page.fill("#other", "a cat is ")
    page.locator("#mask").click()
    expect(page.locator("#other")).to_have_value("a cat is [MASK]")
    page.locator("#mask").click()  # both have one
    expect(page.locator("#text")).to_have_value("the keys are [MASK]")
    expect(page.locator("#other")).to_have_value("a cat is [MASK]")


@pytest.mark.slow
def test_share_as_a_file(visit: Open, tmp_path: Path) -> None:
    page = visit()
    explain(page, "<img src=x onerror=alert(1)> & a </script> movie", ("globenc", "attcat"))
    with page.expect_download() as download:
        page.click("#share")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.suffix == ".html"
    alone = visit(offline=False)
    alone.context.set_offline(True)
    alone.goto(file.as_uri())
    assert alone.locator(".card").count() == 2
    assert alone.locator(".evidence").count() == 2
    assert alone.locator(".agreement").is_visible()
    assert alone.locator("img").count() == 0
    assert "<img src=x" in alone.title()
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', file.read_text())[1])
    assert [each["name"] for each in data["explanations"]] == ["attcat", "globenc"]


def test_export_from_the_viewer(visit: Open) -> None:
    page = visit()
    explain(page, TEXT, ("globenc",))
    page.get_by_role("button", name="Save", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSON").click()
    assert download.value.suggested_filename.endswith(".json")


def test_errors_are_sentences(visit: Open) -> None:
    page = visit(quiet=False)  # a browser logs every answer that is no 200
    page.fill("#text", " ")
    page.click("#explain")
    assert "no text yet" in page.locator("#error").inner_text()
    page.select_option("#model", "tiny-mlm")
    page.fill("#text", "the cat [MASK] here .")
    page.fill("#target", "xyzzyqw")
    page.click("#explain")
    page.locator("#error", has_text="is not one token of this model's vocabulary").wait_for()
    page.fill("#text", "word " * 300)
    page.fill("#target", "")
    page.click("#explain")
    page.locator("#error", has_text="the model reads at most").wait_for()
    assert "truncate" not in page.locator("#error").inner_text()  # a word of Python's, not of the page's
    remedy = page.get_by_role("button", name="Explain its beginning")
    edge, ground = (
        remedy.evaluate(f"it => getComputedStyle(it).{name}") for name in ("borderTopColor", "backgroundColor")
    )
    assert "rgba(0, 0, 0, 0)" not in (edge, ground)  # it looks like a button, not like the rest of the sentence
    remedy.click()
    page.locator("#status", has_text="Done in").wait_for()
    assert page.locator("#error").is_hidden()
    assert page.locator(".remarks", has_text="cut where the model stops reading").is_visible()
    page.locator("#text").evaluate(
        "it => { it.focus(); document.execCommand('insertText', false, 'word '.repeat(3000)); }"
    )
    page.click("#explain")  # nothing of what was pasted is dropped without a word
    page.locator("#error", has_text=re.compile(r"1\d,\d{3} characters; this server takes at most 10,000")).wait_for()
    page.fill("#text", "the cat [MASK] here .")
    page.route("**/api/compare", lambda route: route.abort())
    page.click("#explain")
    page.locator("#error", has_text="cannot be reached").wait_for()


def test_beside_an_error_nothing_is_left_of_the_question_before(visit: Open) -> None:
    page = visit()
    explain(page, "the film is good", ("globenc",))
    page.fill("#text", " ")
    page.click("#explain")
    expect(page.locator("#error")).to_contain_text("no text yet")
    expect(page.locator("#status")).to_be_empty()
    expect(page.locator("#results")).to_be_hidden()
    explain(page, "the film is bad", ("globenc",))
    expect(page.locator(".card")).to_have_count(1)


def test_a_class_of_one_model_is_no_word_of_the_next(visit: Open) -> None:
    page = visit()
    page.select_option("#model", "wherefrom/sentiment")
    page.select_option("#target", "all")
    for foil, said in (("negative", "Every class is explained by itself"), ("", "")):
        page.select_option("#foil", foil)
        page.click("#explain")
        expect(page.locator("#error")).to_contain_text(said)
    page.select_option("#target", index=2)
    page.select_option("#foil", page.input_value("#target"))
    page.click("#explain")
    expect(page.locator("#error")).to_contain_text("are the same: choose another under Rather than")
    page.select_option("#foil", "")
    page.select_option("#target", "all")
    page.select_option("#model", "tiny-mlm")
    assert page.input_value("#target") == ""
    page.fill("#target", "film")
    page.select_option("#model", "wherefrom/sentiment")
    assert page.input_value("#target") == ""


def test_an_error_goes_when_another_model_is_chosen(visit: Open) -> None:
    page = visit()
    page.fill("#text", " ")
    page.click("#explain")
    expect(page.locator("#error")).to_contain_text("no text yet")
    page.select_option("#model", "tiny-mlm")
    expect(page.locator("#error")).to_be_hidden()


@pytest.mark.slow
def test_a_long_text_in_windows(visit: Open) -> None:
    page = visit(quiet=False)
    page.fill("#text", "the cat is good . " * 20)
    page.click("#explain")
    page.get_by_role("button", name="Explain all of it, in overlapping windows").click()
    page.locator("#status", has_text="Done in").wait_for()
    assert page.locator("#error").is_hidden()
    assert page.get_by_text("windows that overlap by").first.is_visible()
    page.select_option("#model", "tiny-mlm")  # predicts at one place, which not every window has
    page.fill("#text", "the cat [MASK] good . " + "the cat is good . " * 20)
    page.click("#explain")
    page.get_by_role("button", name="Explain its beginning").wait_for()
    assert not page.get_by_role("button", name="in overlapping windows").is_visible()


def test_light_and_dark_follow_the_system_and_the_button(visit: Open) -> None:
    def ground(page: Any) -> str:
        return str(page.locator("html").evaluate("each => getComputedStyle(each).backgroundColor"))

    dark, light = visit(color_scheme="dark"), visit(color_scheme="light")
    assert ground(dark) == "rgb(22, 24, 29)"
    assert ground(light) == "rgb(255, 255, 255)"
    explain(light, TEXT, ("globenc",))
    light.get_by_role("button", name="Light or dark").click()  # the viewer's choice is the page's
    light.locator("html[data-theme=dark]").wait_for(state="attached")
    assert ground(light) == "rgb(22, 24, 29)"


def test_the_page_fits_a_phone(visit: Open) -> None:
    page = visit(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    explain(page, TEXT)
    width = page.locator("html").evaluate("each => [each.scrollWidth, each.clientWidth]")
    assert width[0] <= width[1]  # nothing hangs out
    assert page.locator("#model").bounding_box()["width"] > 250  # wherefrom/sentiment, and not wherefrom/…
    box = page.locator("#explain").bounding_box()
    assert box["height"] >= 40
    # The results stand below the form; the page goes there by itself.
    page.wait_for_function("document.getElementById('results').getBoundingClientRect().top < innerHeight / 2")


def test_the_page_works_by_keyboard_alone(visit: Open) -> None:
    page = visit()
    page.focus("#text")
    page.keyboard.type(" and more")
    page.keyboard.press("Control+Enter")
    page.locator("#status", has_text="Done in").wait_for()
    unnamed = page.locator("button, input, select, textarea").evaluate_all(
        """all => all.filter(each => !(each.labels?.length || each.textContent.trim() || each.ariaLabel))
                     .map(each => each.outerHTML)"""
    )
    assert unnamed == []
    assert page.locator("#status").get_attribute("role") == "status"
    assert page.locator("#error").get_attribute("role") == "alert"


@pytest.mark.slow
def test_a_text_without_split_words_chooses_no_pieces_for_the_next(visit: Open) -> None:
    page = visit()
    explain(page, "good film")
    page.locator(".viewer .token", has_text="film").first.focus()
    page.keyboard.press("w")  # which would choose what nobody sees
    assert "units" not in page.url
    explain(page, "the meaningful film")
    viewer = page.locator(".viewer")
    expect(viewer.get_by_role("button", name="Words", exact=True)).to_have_attribute("aria-pressed", "true")
    viewer.get_by_role("button", name="Pieces", exact=True).click()
    for text in ("good film", "a meaningful film"):  # what the reader has chosen stays
        explain(page, text)
    expect(viewer.get_by_role("button", name="Pieces", exact=True)).to_have_attribute("aria-pressed", "true")
