"""The viewer of a generation: its data and document without a browser, and what one sees in one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import wherefrom
from browser import expect, settle
from wherefrom.result.generation import Generation
from wherefrom.view.said_html import document, fragment, payload
from wherefrom.view.terminal import arrival

PROMPT = "the cat is not very good . the dog"


@pytest.fixture(scope="module")
def model() -> Any:
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    found = tiny.model("llama", "causal-lm", dtype=torch.float64, num_hidden_layers=1, eos_token_id=None)
    return wherefrom.open_model(found, tokenizer)


@pytest.fixture(scope="module")
def generation(model: Any) -> Generation:
    return wherefrom.generate(PROMPT, model, max_new_tokens=4, do_sample=False, alternatives=2)


@pytest.fixture
def shown(page: Any, tmp_path: Path, generation: Generation) -> Any:
    def open_document(state: str = "", source: str | None = None) -> Any:
        file = tmp_path / "said.html"
        file.write_text(source or document(generation), encoding="utf-8")
        page.goto("about:blank")
        page.goto(f"{file.as_uri()}#{state}")
        page.locator(".wherefrom .text").wait_for()
        settle(page)
        return page

    return open_document


def test_the_payload_has_what_is_shown(generation: Generation) -> None:
    found = payload(generation)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["start"] == generation.start
    assert "".join(gap + piece for gap, piece in zip(found["gaps"], found["tokens"], strict=True)).split()
    assert found["units"]["sentence"] == [0, 7, generation.start]
    assert found["units"]["turn"] == [0, generation.start]
    step, said = found["steps"][1], generation.steps[1]
    assert step["probability"] == said.probabilities[str(said.target.label)]
    assert step["arrival"] == arrival(generation[1])
    assert [token for token, *_ in step["others"]][:2] == step["foils"] == [each.foil for each in said.foils]
    assert {name: p for _, name, p in step["others"]}.items() <= said.probabilities.items()
    arrays = {"scores": generation.scores, "foil_scores": generation.foil_scores}
    assert Generation.from_dict({**json.loads(found["record"]), **arrays}).text == generation.text


def test_the_document_stands_alone_and_escapes(generation: Generation) -> None:
    found = document(generation)
    assert not re.search(r"(?:src|href)=\"(?!data:)", found)
    assert "default-src 'none'" in found
    assert found.count("<script") == 2
    odd = Generation.from_dict(json.loads(json.dumps(generation.to_dict()).replace("cat", "<b>")))
    assert "<b> is" not in document(odd)
    assert 'data-wherefrom="' in generation._repr_html_() == fragment(generation)
    assert len(generation.to_html()) < 250_000


def test_a_click_lights_up_the_sources(shown: Any, generation: Generation) -> None:
    page = shown("unit=token")
    tokens = page.locator(".token")
    expect(page.locator("h1")).to_have_text("Where the answer comes from")
    tokens.nth(generation.start + 1).click()
    expect(page.locator("h1")).to_contain_text(generation.tokens[1].strip())
    scores = generation[1].scores
    strongest = int(np.abs(scores[:-1]).argmax())
    grounds = tokens.evaluate_all("all => all.map(each => each.style.background)")
    assert grounds[strongest]
    assert not any(grounds[len(scores) :])
    assert tokens.evaluate_all("all => all.filter(each => each.classList.contains('later')).length") == 2
    assert page.evaluate("location.hash") == "#token=1&unit=token"
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(generation.start + 2)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator('.token[aria-pressed="true"]')).to_have_count(2)
    page.keyboard.press("Escape")
    tokens.nth(generation.start).click()
    tokens.nth(generation.start + 2).click(modifiers=["Shift"])
    expect(page.locator('.token[aria-pressed="true"]')).to_have_count(3)
    assert page.evaluate("String(getSelection())") == ""  # which would lie over the colours
    page.keyboard.press("Escape")
    expect(page.locator("h1")).to_have_text("Where the answer comes from")
    # Why not another word?
    tokens.nth(generation.start + 1).click()
    foil = generation.steps[1].foils[1]
    expect(page.locator(".why")).to_have_count(2)
    page.get_by_role("button", name=f"Why not “{foil.foil_label}”?").click()
    expect(page.locator("h1")).to_contain_text(f"rather than “{foil.foil_label}”")
    settle(page)
    _, piece, _ = generation.why_not(1, str(foil.foil_label)).top(1)[0]
    assert piece.strip() in page.locator(".readout .item").first.inner_text()
    expect(page.locator("figcaption")).to_contain_text("not rather than another")  # the heatmap knows no foil
    page.keyboard.press("2")
    expect(page.locator("h1")).not_to_contain_text("rather than")
    expect(page.locator("figcaption")).not_to_contain_text("rather than")


def test_sums_over_sentences_the_heatmap_and_saving(shown: Any, generation: Generation, tmp_path: Path) -> None:
    page = shown("token=0")
    page.get_by_role("button", name="Sentences").click()
    settle(page)
    sums = generation[0].by("sentence")
    assert sums.top(1)[0][1].strip() in page.locator(".readout .item").first.inner_text()
    stage = page.locator(".stage")
    box = stage.bounding_box()
    stage.click(position={"x": box["width"] - 4, "y": 4})  # the first row, which is let go
    expect(page.locator("h1")).to_have_text("Where the answer comes from")
    page.keyboard.press("m")
    expect(stage).to_be_hidden()
    page.get_by_role("button", name="Save").click()
    with page.expect_download() as caught:
        page.get_by_role("button", name="Download JSON").click()
    caught.value.save_as(tmp_path / "back.json")
    back = Generation.load(tmp_path / "back.json")
    assert (back.scores == generation.scores).all()
    assert back.steps == generation.steps
    assert back.foil_scores is not None
    assert np.allclose(back.foil_scores, generation.foil_scores, atol=1e-6)


@pytest.mark.slow
def test_methods_without_an_output_have_no_why_not(shown: Any, model: Any) -> None:
    found = wherefrom.generate(PROMPT, model, method="alti", max_new_tokens=2, do_sample=False)
    page = shown("token=1", document(found))
    assert page.locator(".why").count() == 0
    expect(page.locator(".others")).to_contain_text("looks at no output")


@pytest.mark.slow
def test_everything_has_a_name_and_fits_a_phone(shown: Any) -> None:
    page = shown("token=1")
    shadow = "document.querySelector('[data-wherefrom]').shadowRoot"
    nameless = f"""() => [...{shadow}.querySelectorAll("button, input, [role], [tabindex]")].filter((each) =>
        !each.matches("[role=status]") && !(each.getAttribute("aria-label") ?? each.textContent).trim()).length"""
    assert page.evaluate(nameless) == 0
    stops = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        stops.update(page.evaluate(f"[...{shadow}.activeElement?.classList ?? []]"))
    assert {"stage", "token", "why"} <= stops  # reached without a mouse
    ground = f"getComputedStyle({shadow}.querySelector('.wherefrom')).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    settle(page)
    assert page.evaluate(ground) != "rgb(255, 255, 255)"
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        sizes = page.locator(".segments button, .buttons button, .why").evaluate_all(
            "all => all.map(e => e.offsetHeight)"
        )
        assert min(sizes) >= 24  # WCAG 2.2, 2.5.8


@pytest.mark.parametrize("word", ["\U0001f642", "\u00c4\u00d6\u00dc"])
def test_the_bytes_of_a_character_are_shown_once(modules: Any, word: str) -> None:
    """Also where the first of them has a blank before it."""
    found = wherefrom.generate(f"a {word} b", "wherefrom/lm", target=" c")
    data = payload(found)
    assert sum(data["again"]) >= 1
    work = """async (data) => {
        const { saidOf, unitText } = await import("/viewer/said.js");
        const said = saidOf(data);
        return said.units.word.map((_, which) => unitText(said, "word", which));
    }"""
    assert word in [each.strip() for each in modules.evaluate(work, data)]


def test_a_blank_is_no_new_line(modules: Any) -> None:
    found = wherefrom.generate("The word", "wherefrom/lm", target=" \u0633\n")
    work = """async (data) => {
        const { saidOf, chosenText } = await import("/viewer/said.js");
        const { saidMap } = await import("/viewer/saidmap.js");
        const said = saidOf(data);
        const { words } = saidMap.layout(said, { unit: "token" }, 800);
        return [words, said.steps.map((_, s) => chosenText(said, { from: s, to: s }))];
    }"""
    for words in modules.evaluate(work, payload(found)):
        assert words[0] == "␣"
        assert words[-1] == "↵"


def test_numbers_over_units_are_pythons(modules: Any, model: Any) -> None:
    chosen = [(None, None), (2, 2), (1, 3)]
    work = """async ([data, chosen]) => {
        const { saidOf, rowOf, reading } = await import("/viewer/said.js");
        const said = saidOf(data);
        const numbers = (unit, [from, to]) => {
            const { values, sources } = reading(said, rowOf(said, { from, to, foil: null }), unit);
            return [...values.slice(0, sources)];
        };
        return Object.keys(said.units).map((unit) => [unit, chosen.map((each) => numbers(unit, each))]);
    }"""
    for method in ("alti-logit", "saliency", "alti"):  # sums, means, and means of rows
        found = wherefrom.generate(PROMPT, model, method=method, max_new_tokens=4, do_sample=False)
        for unit, rows in modules.evaluate(work, [payload(found), chosen]):
            for (start, end), row in zip(chosen, rows, strict=True):
                one = found[:] if start is None else found[start : end + 1] if start < end else found[start]
                assert np.allclose(row, one.by(unit).scores, atol=1e-9), (method, unit, start)


def test_a_turn_that_begins_with_a_special_token_sets_the_scale(modules: Any, generation: Generation) -> None:
    data = payload(generation)
    data["special"] = [True, *data["special"][1:]]
    work = """async ([data, unit]) => {
        const { saidOf, rowOf, reading } = await import("/viewer/said.js");
        const said = saidOf(data);
        const { values, sources, scale } = reading(said, rowOf(said, { from: null, to: null, foil: null }), unit);
        return [[...values.slice(0, sources)], scale];
    }"""
    turns, scale = modules.evaluate(work, [data, "turn"])
    assert scale == pytest.approx(np.abs(turns).max())
    tokens, scale = modules.evaluate(work, [data, "token"])
    assert scale == pytest.approx(np.abs(tokens[1:-1]).max())  # neither the special token's nor the last one's own
