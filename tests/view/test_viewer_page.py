"""The viewer as people use it: in a real browser, from a file, without a network."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
import wherefrom
from browser import expect, settle, window
from wherefrom.result.comparison import Comparison
from wherefrom.result.explanation import Explanation
from wherefrom.view.colour import DARK, PALE, WHITE, intensities, shade
from wherefrom.view.html import document, fragment, payload

TOKENIZER = tiny.tokenizer()
TEXT = "Meaningful, the deep film!"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def one() -> Explanation:
    return wherefrom.explain(TEXT, tiny.model(), TOKENIZER, head="all")


@pytest.fixture(scope="module")
def several() -> Comparison:
    found = wherefrom.compare(TEXT, tiny.model(), TOKENIZER, methods=["attention-rollout", "globenc", "attcat"])
    assert isinstance(found, Comparison)
    return found


def grounds(page: Any, card: int = 0) -> list[tuple[int, ...] | None]:
    """The colours behind the tokens of one text, None where there is none."""
    work = "(text) => [...text.querySelectorAll('.token')].map((token) => token.style.background)"
    found = page.locator(".text").nth(card).evaluate(work)
    return [tuple(map(int, re.findall(r"\d+", each))) if each else None for each in found]


def expected(values: Any, signed: bool, own: int | None, ground: tuple[int, int, int] = WHITE) -> list[Any]:
    """The colours of a text in brackets of special tokens, which are pale and set no scale."""
    special = [place in (0, len(values) - 1) for place in range(len(values))]
    strength = intensities(np.asarray(values), signed, own, special) * np.where(special, PALE, 1)
    return colours(strength, signed, ground)


def colours(strength: Any, signed: bool, ground: tuple[int, int, int] = WHITE) -> list[Any]:
    return [None if abs(value) < 0.02 else shade(float(value), signed, ground) for value in strength]


def near(found: list[Any], wanted: list[Any]) -> bool:
    """The same colours, up to the steps that the page has."""
    pairs = zip(found, wanted, strict=True)
    return all(np.abs(np.subtract(a or (255,) * 3, b or (255,) * 3)).max() <= 12 for a, b in pairs)


def pixels(page: Any, view: str, points: list[tuple[float, float]]) -> list[tuple[int, ...]]:
    """The colours that a picture has at these points, given in CSS pixels."""
    work = """(canvas, points) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const at = ([x, y]) => 4 * (Math.floor(y * devicePixelRatio) * canvas.width + Math.floor(x * devicePixelRatio));
        return points.map((point) => [...data.slice(at(point), at(point) + 3)]);
    }"""
    return page.locator(f".picture.{view} canvas").first.evaluate(work, points)


def test_a_text_is_coloured_by_its_scores_and_by_what_is_pointed_at(opened: Open, several: Comparison) -> None:
    page = opened(document(several))
    for card, each in enumerate(several.values()):
        assert page.locator(".text").nth(card).inner_text() == "[CLS] Meaningful, the deep film! [SEP]"
        assert near(grounds(page, card), expected(each.scores, each.signed, each.position))
    place = page.locator(".text").last.bounding_box()
    page.locator(".text .token", has_text="film").first.hover()
    settle(page)
    token = several["globenc"].pieces.index("film")
    for card, name in enumerate(("attention-rollout", "globenc")):  # one pointer, all texts
        assert near(grounds(page, card), expected(several[name].aggregated[-1, token], False, token))
    assert "from" in page.locator(".readout").first.inner_text()
    assert page.locator(".text").last.bounding_box() == place  # nothing moves under the pointer
    page.mouse.move(1, 1)
    settle(page)
    first = several["attention-rollout"]
    assert near(grounds(page), expected(first.scores, False, first.position))


def test_the_layer_slider(opened: Open, one: Explanation) -> None:
    page = opened(document({"m": one}))
    slider = page.get_by_label("Layer", exact=True)
    assert slider.get_attribute("aria-valuetext") == "answer"
    slider.fill("1")
    settle(page)
    assert slider.get_attribute("aria-valuetext") == "1 (0 to 2)"
    assert near(grounds(page), expected(one.aggregated[1, one.position], False, one.position))
    assert "layer=1" in page.url
    page.locator(".text .token", has_text="film").hover()
    settle(page)
    words = one.words()
    shown = page.locator(".readout").inner_text().split()
    assert shown[:3] == ["film", "layer", "1"]  # not the answer's score beside the colours of a layer
    share = words.aggregated[1, words.position] / words.aggregated[1, words.position].sum()
    assert float(shown[3]) == pytest.approx(share[words.tokens.index("film")], rel=0.01)


def test_the_map_shows_the_layers_numbers(opened: Open, one: Explanation) -> None:
    states = {
        "kind=own&layer=1": one.maps[1],
        "kind=joined&layer=0": one.aggregated[0],
        "layer=2&head=1": one.head_maps[2, 1],
    }
    n = len(one)
    for state, maps in states.items():
        page = opened(document({"m": one}), f"view=map&{state}")
        left = page.locator(".picture.map canvas").first.bounding_box()["width"] - 1 - 28 * n  # the labels' room
        cells = [(left + (j + 0.5) * 28, 1 + (i + 0.5) * 28) for i in range(n) for j in range(n)]
        scale = np.abs(maps - np.diag(np.diag(maps))).max()
        wanted = [shade(float(min(1, value / scale)), False) for value in maps.ravel()]
        assert np.abs(np.subtract(pixels(page, "map", cells), wanted)).max() <= 2


def test_the_layers_picture_has_the_last_layer_on_top(opened: Open, several: Comparison) -> None:
    given = several["attcat"]
    page = opened(document({"m": given}), "view=layers")
    n, depth = len(given), len(given.layer_scores)
    cells = [(26 + (j + 0.5) * 40, 2 + (depth - layer - 0.5) * 16) for layer in range(depth) for j in range(n)]
    strength = np.concatenate([intensities(row, True, given.position) for row in given.layer_scores])
    wanted = [colour or WHITE for colour in colours(strength, True)]
    assert np.abs(np.subtract(pixels(page, "layers", cells), wanted)).max() <= 5


def test_a_token_that_is_pointed_at_is_pinned_at_once(opened: Open, one: Explanation) -> None:
    page = opened(document({"m": one}))
    token = page.locator(".token", has_text="deep")
    token.hover()
    settle(page)
    for pressed in ("true", "false"):
        token.click()
        expect(token).to_have_attribute("aria-pressed", pressed)


def test_click_pins_and_the_address_keeps_it(opened: Open, one: Explanation) -> None:
    page = opened(document({"m": one}), "view=layers+map+graph")
    page.locator(".token", has_text="deep").click()
    page.mouse.move(1, 1)
    settle(page)
    token = one.pieces.index("deep")
    assert f"pin=0.{token}" in page.url
    row = expected(one.aggregated[-1, token], False, token)
    assert near(grounds(page), row)
    page.reload()
    page.locator(".token").first.wait_for()
    settle(page)
    assert near(grounds(page), row)
    assert page.locator(".token[aria-pressed=true]").inner_text() == "deep"
    page.get_by_role("button", name="Words").click()  # the same place in the text
    settle(page)
    assert page.locator(".token[aria-pressed=true]").inner_text() == "deep"
    page.keyboard.press("Escape")
    settle(page)
    assert page.locator(".token[aria-pressed=true]").count() == 0
    page.locator(".picture.layers .stage").click(position={"x": 26 + 20, "y": 2 + 8})
    settle(page)
    assert "pin=0.0" in page.url
    assert "layer=2" in page.url


def test_top_k_order_words_and_special_tokens(opened: Open, one: Explanation) -> None:
    page = opened(document({"m": one}), "top=2&order=score&special=0")
    shown = [i for i in np.argsort(-one.scores, kind="stable") if not one.special[i]]
    assert page.locator(".token").all_inner_texts() == [one.pieces[i] for i in shown]
    assert [ground is not None for ground in grounds(page)] == [place < 2 for place in range(len(shown))]
    page.get_by_role("button", name="Words").click()
    page.get_by_role("button", name="Text", exact=True).click()
    settle(page)
    assert page.locator(".token").all_inner_texts() == ["Meaningful", ",", "the", "deep", "film", "!"]


def test_the_keyboard(opened: Open, several: Comparison) -> None:
    page = opened(document(several), "view=")
    press = page.keyboard.press
    for key, view in (("l", "layers"), ("m", "map"), ("g", "graph")):
        press(key)
        page.locator(f".picture.{view}").first.wait_for()
    press("l")
    settle(page)
    assert page.locator(".picture.layers").count() == 0
    for key, part in (
        (",", "layer=2"),
        ("o", "order=score"),
        ("j", "kind=own"),
        ("s", "special=0"),
    ):
        press(key)
        settle(page)
        assert part in page.url
    press("w")
    settle(page)
    assert "units" not in page.url  # words are where one starts
    press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    press("Escape")
    assert not page.get_by_role("dialog", name="Keys").is_visible()
    page.locator(".text .token[tabindex='0']").first.focus()
    press("ArrowRight")
    press("Enter")
    settle(page)
    assert "pin=0." in page.url
    assert "comes from" in page.locator(".live").text_content()
    page.locator(".picture.map .stage").first.focus()
    press("ArrowDown")
    assert " draws " in page.locator(".live").text_content()
    page.evaluate("document.body.append(document.createElement('input'))")
    page.locator("body > input").fill("")
    page.locator("body > input").press("g")  # a letter someone types
    assert page.locator("body > input").input_value() == "g"
    assert page.locator(".picture.graph").count() == 2  # attcat has no maps


@pytest.mark.parametrize(
    ("view", "said"), [("layers", r"layer \d: .+ \S+"), ("map", " draws "), ("graph", " in layer ")]
)
def test_the_arrow_keys_walk_a_picture_and_say_what_is_there(
    opened: Open, one: Explanation, view: str, said: str
) -> None:
    page = opened(document({"m": one}), f"view={view}")
    stage, live = page.locator(f".picture.{view} .stage").first, page.locator(".live")
    stage.focus()
    heard = []
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        expect(live).to_have_text(re.compile(said))
        heard.append(live.text_content())
    assert len(set(heard)) > 1


def test_a_layer_in_focus_that_another_method_has_not_leaves_it_the_token(opened: Open) -> None:
    """ablation-pairs has one map and no layers; its neighbours of the same text have three."""
    compared = wherefrom.compare(TEXT, tiny.model(), TOKENIZER, methods=["alti", "ablation-pairs"])
    assert len(compared["ablation-pairs"].maps) < len(compared["alti"].maps)
    for view in ("layers", "graph"):
        page = opened(document(compared), f"view={view}")
        page.locator(f".picture.{view} .stage").first.focus()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowRight")
        settle(page)  # the words under a text are written in the next frame
        first, second = (page.locator(".readout").nth(which) for which in (0, 1))
        expect(second).to_contain_text("score")
        assert first.locator("b").first.inner_text() == second.locator("b").first.inner_text()


def test_everything_has_a_name(opened: Open, several: Comparison) -> None:
    page = opened(document(several), "view=layers+map+graph")
    nameless = """() => [...document.querySelector("[data-wherefrom]").shadowRoot.querySelectorAll(
        "button, input, select, [role], [tabindex]")].filter((each) => !each.matches("[role=status]") &&
        !(each.getAttribute("aria-label") ?? each.textContent).trim()).map((each) => each.outerHTML)"""
    assert page.evaluate(nameless) == []
    assert "3 layers by 9 tokens" in page.get_by_role("img").first.get_attribute("aria-label")
    page.keyboard.press("Tab")
    stops = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        at = "[...document.querySelector('[data-wherefrom]').shadowRoot.activeElement?.classList ?? []]"
        stops.update(page.evaluate(at))
    assert {"stage", "token", "chip"} <= stops  # reached without a mouse


def test_on_paper_stand_the_colours_and_not_the_buttons(opened: Open, several: Comparison) -> None:
    page = opened(document(several))
    page.emulate_media(media="print")
    kept = "each => getComputedStyle(each).printColorAdjust"
    assert page.locator(".token").first.evaluate(kept) == "exact"  # a browser prints no backgrounds by itself
    assert not any(page.locator(part).first.is_visible() for part in (".toolbar", ".buttons", ".legend"))


def saved(page: Any, tmp_path: Path, format_: str) -> Path:
    page.keyboard.press("e")
    with page.expect_download() as waiting:
        page.get_by_role("button", name=f"Download {format_.upper()}").click()
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_every_kind_of_file_is_downloaded(opened: Open, one: Explanation, several: Comparison, tmp_path: Path) -> None:
    page = opened(document(several), "view=layers+map+graph&pin=0.2")
    loaded = Comparison.load(saved(page, tmp_path, "json"))
    for name, each in several.items():
        again = loaded[name]
        assert (again.tokens, again.target, again.readout, again.options) == (
            each.tokens,
            each.target,
            each.readout,
            each.options,
        )
        for array in ("scores", "maps", "aggregated", "layer_scores"):
            before, after = getattr(each, array), getattr(again, array)
            assert (before is None) == (after is None)
            assert before is None or (np.array_equal(before, after) and before.dtype == after.dtype)
    picture = saved(page, tmp_path, "png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(picture) > 10_000
    drawing = ElementTree.parse(saved(page, tmp_path, "svg"))
    texts = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("film") >= 3
    assert texts[0] == "explained: what [CLS] is made of, not towards a class or word  ·  Meaningful, the deep film!"
    apart = [text for text in texts[1:] if text and text.startswith("explained: ")]  # beside what it is true of
    assert apart == [f"explained: {several['attcat'].explained}"]
    assert (texts.count("for"), texts.count("against")) == (1, 1)  # beside the one method that has signs
    assert len(saved(page, tmp_path, "csv").read_text(encoding="utf-8").splitlines()) == 1 + 3 * len(one)
    page = opened(document({"m": one}))
    again = Explanation.load(saved(page, tmp_path, "json"))
    assert np.array_equal(again.head_maps, one.head_maps)


def test_copying_puts_the_file_on_the_clipboard(context: Any, opened: Open, one: Explanation) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opened(document({"m": one}))
    page.keyboard.press("e")
    page.get_by_role("button", name="Copy CSV").click()
    page.get_by_text("CSV copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").splitlines()[1].startswith("m,0,[CLS],1,")
    page.keyboard.press("e")
    page.get_by_role("button", name="Copy PNG").click()
    page.get_by_text("PNG copied").wait_for()
    kinds = "navigator.clipboard.read().then((items) => items.flatMap((item) => item.types))"
    assert "image/png" in page.evaluate(kinds)


def test_markup_in_a_token_does_nothing(opened: Open, tmp_path: Path) -> None:
    bomb = "<img src=x onerror=window.hurt=1><svg onload=window.hurt=1><script>window.hurt=1</script>"
    maps = np.full((2, 3, 3), 1 / 3)
    given = Explanation(
        [bomb, "</script>", "{{7*7}}"], maps[0, 0], bomb, maps=maps, model=bomb, prediction=bomb,
        probabilities={bomb: 0.5}, options={bomb: bomb}, target=wherefrom.result.answer.Target("class", 0, bomb),
    )  # fmt: skip
    page = opened(document({bomb: given, "second": given}, bomb), "view=layers+map+graph")
    page.locator(".token").first.hover()
    page.locator(".token").first.click()
    drawing = saved(page, tmp_path, "svg")
    settle(page)
    assert page.evaluate("window.hurt") is None
    assert page.locator(".text").first.inner_text().startswith(bomb)
    inside = "[...document.querySelector('[data-wherefrom]').shadowRoot.querySelectorAll('img, svg, script')].length"
    assert page.evaluate(inside) == 0
    assert page.title() == f"{bomb} · wherefrom"
    page.goto(drawing.as_uri())
    assert page.evaluate("window.hurt") is None


def test_nothing_is_fetched(page: Any, one: Explanation, tmp_path: Path) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    file = one.save(tmp_path / "x.html")
    page.goto(file.as_uri())
    page.locator(".token").first.hover()
    assert asked == [file.as_uri(), *[url for url in asked if url.startswith("data:")]]


def test_many_in_one_notebook(page: Any, one: Explanation, several: Comparison, tmp_path: Path) -> None:
    rule = "<style>span, button { color: rgb(255, 0, 0) !important; font-size: 40px !important; }</style>"
    cells = "".join(
        f"<div class=cell>{part}</div>" for part in (one._repr_html_(), fragment(several), one._repr_html_())
    )
    file = tmp_path / "notebook.html"
    file.write_text(
        f"<!doctype html><meta charset=utf-8>{rule}<p><span>around</span></p><input>{cells}", encoding="utf-8"
    )
    page.goto(file.as_uri())
    settle(page)
    assert page.locator(".wherefrom").count() == 3
    assert page.locator(".text").count() == 5
    keys = page.evaluate("[...document.querySelectorAll('[data-wherefrom]')].map((each) => each.dataset.wherefrom)")
    assert keys[0] == keys[2] != keys[1]  # the same explanation gives the same cell
    size = page.locator(".token", has_text="film").first.evaluate("(token) => getComputedStyle(token).fontSize")
    assert size == "17px"
    assert page.locator("p > span").first.evaluate("(each) => getComputedStyle(each).color") == "rgb(255, 0, 0)"
    page.locator(".wherefrom").nth(0).get_by_role("button", name="Map", exact=True).click()
    settle(page)
    assert page.locator(".picture.map").count() == 1  # the others stay as they are
    page.locator("input").first.press("m")
    assert "#" not in page.url


def test_without_a_script_the_text_is_there(browser: Any, one: Explanation, tmp_path: Path) -> None:
    context = window(browser, java_script_enabled=False)
    page = context.new_page()
    page.goto(one.save(tmp_path / "x.html").as_uri())
    assert "Meaningful, the deep film!" in page.locator("main").inner_text()
    context.close()


def test_served_as_modules_under_a_strict_policy(modules: Any, several: Comparison) -> None:
    work = """async (data) => {
        const { mount } = await import("/viewer/viewer.js");
        window.viewer = mount(document.querySelector("div"), data, { sheet: "/viewer/viewer.css", keys: "focus" });
    }"""
    modules.evaluate(work, payload(several))
    expect(modules.locator(".token").first).to_have_css("cursor", "pointer")  # as soon as the style sheet is there
    assert modules.locator(".text").count() == 3
    modules.evaluate("(data) => viewer.update(data)", payload({"alone": several["globenc"]}))
    settle(modules)
    assert modules.locator(".text").count() == 1
    modules.evaluate("viewer.destroy()")
    assert modules.locator(".text").count() == 0
    modules.evaluate(work, payload(several))  # in the same place again
    assert modules.locator(".text").count() == 3


def test_dark_and_a_phones_width(opened: Open, several: Comparison) -> None:
    page = opened(document(several), "view=layers+map+graph")
    shadow = "document.querySelector('[data-wherefrom]').shadowRoot"
    ground = f"getComputedStyle({shadow}.querySelector('.wherefrom')).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    settle(page)
    assert page.evaluate(ground) == f"rgb{DARK}"
    first = several["attention-rollout"]
    assert near(grounds(page), expected(first.scores, False, first.position, DARK))
    page.keyboard.press("d")
    settle(page)
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert "theme=light" in page.url
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        targets = page.locator(".segments button, .buttons button").evaluate_all(
            "(all) => all.map((each) => each.offsetHeight)"
        )
        assert min(targets) >= 24  # WCAG 2.2, 2.5.8


def test_pointing_draws_only_what_changed(opened: Open) -> None:
    n, depth = 256, 6
    generator = np.random.default_rng(0)
    maps = generator.random((depth, n, n), dtype=np.float32) ** 8 + np.eye(n, dtype=np.float32)
    given = Explanation([f"w{i}" for i in range(n)], maps[-1, 0], "m", maps=maps)
    page = opened(document({"m": given}), "view=layers+map+graph")
    page.evaluate("""() => {
        window.drawn = { drawImage: 0, bezierCurveTo: 0 };
        for (const name of Object.keys(drawn)) {
            const before = CanvasRenderingContext2D.prototype[name];
            CanvasRenderingContext2D.prototype[name] = function (...given) {
                drawn[name]++;
                return before.apply(this, given);
            };
        }
    }""")
    page.locator(".token").nth(100).hover()
    page.locator(".token").nth(101).hover()
    settle(page)
    pointed = page.evaluate("({ ...drawn })")
    assert pointed["drawImage"] == 0  # no heatmap is drawn again
    assert 0 < pointed["bezierCurveTo"] < 2000  # of the graph the ways of two tokens
    page.get_by_label("Layer", exact=True).fill("2")
    settle(page)
    assert page.evaluate("drawn.drawImage") == 1  # the map of that layer, and no other picture


def test_a_token_that_is_not_there_is_not_pinned(opened: Open, one: Explanation) -> None:
    page = opened(document({"m": one}), "pin=0.99999&layer=99&head=99&hide=m&hide=x")
    assert page.locator(".token[aria-pressed=true]").count() == 0
    assert page.locator(".text").count() == 1
    assert page.get_by_label("Layer", exact=True).get_attribute("aria-valuetext") == "answer"


def test_an_explanation_of_scores_alone_is_shown(opened: Open) -> None:
    given = Explanation.from_scores(["good", "film"], [0.9, -0.1])
    page = opened(document({"given": given}), "view=layers+map+graph")
    page.locator(".token").first.hover()
    settle(page)
    assert page.locator(".picture").count() == 0
    assert page.get_by_text("given gives one score for each token, and no layers or map or graph.").is_visible()
    assert near(grounds(page), colours(intensities(given.scores, True), True))
    assert page.locator(".readout").inner_text().split() == ["good", "score", "0.9"]
    assert (
        json.loads(page.locator("script[type='application/json']").first.text_content() or "")["format"]
        == "wherefrom.view"
    )
