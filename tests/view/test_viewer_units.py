"""The viewer's modules one by one, inside the browser they are written for, against Python."""

from __future__ import annotations

import base64
import csv
import io
import math
from typing import Any

import numpy as np

import tiny
import wherefrom
from wherefrom.result.explanation import Explanation
from wherefrom.view.payload import pack, payload

TOKENIZER = tiny.tokenizer()


def run(page: Any, module: str, work: str, given: Any = None) -> Any:
    """Calls `work(module, given)` in the page."""
    return page.evaluate(f"async (given) => ({work})(await import('/viewer/{module}.js'), given)", given)


def test_every_half_float(modules: Any) -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    given = {"halves": {**pack(halves, "f2"), "scale": 1.0, "data": base64.b64encode(halves.tobytes()).decode()}}
    given["doubles"] = pack(halves.astype(float), "f8")
    work = """({ unpack }, { halves, doubles }) => {
        const [found, expected] = [unpack(halves).values, unpack(doubles).values];
        return [expected.length, found.filter((value, i) => value !== expected[i]).length];
    }"""
    assert run(modules, "data", work, given) == [len(halves), 0]


def test_arrays_are_unpacked(modules: Any) -> None:
    array = np.random.default_rng(1).normal(size=(2, 3))
    work = "({ unpack }, given) => ({ ...unpack(given), values: [...unpack(given).values] })"
    for kind, close in {"f8": 0, "f4": 1e-7, "f2": 1e-3, "i1": 0.02}.items():
        found = run(modules, "data", work, pack(array, kind))
        assert found["shape"] == [2, 3]
        assert np.allclose(np.reshape(found["values"], (2, 3)), array, rtol=0, atol=close * np.abs(array).max())


def test_words_are_joined_as_python_joins_them(modules: Any) -> None:
    found = wherefrom.explain("Meaningful, the meaningful film!", tiny.model(), TOKENIZER, method="attention-rollout")
    words = found.words()
    assert len(words) < len(found)
    work = """({ subjectsOf, matrix, unitFor }, data) => {
        const [subject] = subjectsOf(data);
        const state = { units: "words", head: null };
        const all = (kind) => [0, 1, 2].map((layer) => [...matrix(subject, { ...state, kind }, layer)]);
        const { tokens, scores, rows, position } = unitFor(subject, "words");
        return { own: all("own"), joined: all("joined"), tokens, scores: [...scores], rows: [...rows], position };
    }"""
    drawn = run(modules, "data", work, payload({"m": found}))
    n = len(words)
    assert np.allclose(np.reshape(drawn["own"], (3, n, n)), words.maps, atol=1e-6)
    assert np.allclose(np.reshape(drawn["joined"], (3, n, n)), words.aggregated, atol=1e-6)
    assert drawn["tokens"] == words.pieces
    assert drawn["scores"] == words.scores.tolist()
    assert np.array_equal(np.reshape(drawn["rows"], (3, n)), words.readout_rows)
    assert drawn["position"] == words.position


def test_one_head_is_that_heads_map(modules: Any) -> None:
    found = wherefrom.explain("the film", tiny.model(), TOKENIZER, head="all")
    work = """({ subjectsOf, matrix }, data) =>
        [...matrix(subjectsOf(data)[0], { units: "pieces", kind: "own", head: 1 }, 2)]"""
    drawn = run(modules, "data", work, payload({"m": found}))
    assert np.allclose(np.reshape(drawn, (len(found),) * 2), found.head_maps[2, 1])


def test_the_strongest_of_a_row(modules: Any) -> None:
    generator = np.random.default_rng(2)
    for k in (0, 1, 3, 9, 20, 40):
        row = np.round(generator.normal(size=30), 1)  # with ties
        shown = sorted(generator.choice(30, 20, replace=False).tolist())
        found = run(
            modules, "data", "({ strongest }, [row, shown, k]) => strongest(row, shown, k)", [row.tolist(), shown, k]
        )
        ranked = sorted(shown, key=lambda i: -abs(row[i]))  # stable: of equals the first
        assert found == (ranked[:k] if k else shown)


def test_order_and_special_tokens(modules: Any) -> None:
    given = Explanation.from_scores(list("abcd"), [0.1, -0.9, 0.5, 0.5], special=[False, False, True, False])
    work = """({ subjectsOf, arrangement }, data) => ["text", "score"].flatMap((order) => [true, false].map((special) =>
        arrangement(subjectsOf(data)[0], { units: "pieces", order, special })))"""
    found = run(modules, "data", work, payload({"m": given}))
    assert found == [[0, 1, 2, 3], [0, 1, 3], [1, 2, 3, 0], [1, 3, 0]]


def test_numbers_to_read(modules: Any) -> None:
    texts = {0: "0", 0.12345: "0.123", -0.5: "−0.5", 1234.6: "1230", 8.04e11: "8.0×10¹¹", -4.2e-5: "−4.2×10⁻⁵"}
    assert run(modules, "data", "({ short }, values) => values.map(short)", list(texts)) == list(texts.values())


def test_what_a_token_gives_itself_sets_no_scale(modules: Any) -> None:
    work = """({ scaleOf, mapScale }) => [scaleOf([8, 1, -2], [0, 1, 2], 0), scaleOf([8, 1, -2], [0, 1, 2]),
        scaleOf([0, 0], [0, 1]), mapScale(new Float32Array([9, 1, -3, 9]), 2, [0, 1])]"""
    assert run(modules, "colour", work) == [2, 8, 1, 3]


def test_the_state_comes_back_from_the_address(modules: Any) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"views": []},
        {"views": ["layers", "graph"], "units": "words", "kind": "own", "layer": 0, "head": 0, "top": 7},
        {
            "order": "score",
            "special": False,
            "theme": "dark",
            "hidden": ["a & b", "ü=#"],
            "pin": {"text": 1, "token": 12},
        },
    ]
    work = """({ START, toHash, fromHash }, change) =>
        [{ ...START, ...change }, fromHash("#" + toHash({ ...START, ...change }))]"""
    for change in changes:
        before, after = run(modules, "state", work, change)
        assert before == after
    assert run(modules, "state", "({ START, toHash }) => toHash(START)") == ""


def test_a_wrong_address_is_read_as_the_start(modules: Any) -> None:
    wrong = ["view=<img>", "layer=-1&head=x&top=1e9", "pin=1", "pin=9.99999999999", "%E0%A4%A", "theme=javascript:"]
    for hash_ in wrong:
        start, found = run(modules, "state", "({ START, fromHash }, hash) => [START, fromHash(hash)]", hash_)
        assert {**found, "views": start["views"]} == start
        assert set(found["views"]) <= {"layers", "map", "graph"}


def test_edges_of_the_graph(modules: Any) -> None:
    found = wherefrom.explain("the deep film", tiny.model(), TOKENIZER, method="attention-rollout")
    n = len(found)
    work = """(graph, data) => import("/viewer/data.js").then(({ subjectsOf }) => {
        const state = { units: "pieces", kind: "own", head: null, top: 2, order: "text", special: true };
        const box = graph.graphView.layout(subjectsOf(data)[0], state, 600);
        const edges = graph.edgesOf(box, state);
        const ways = graph.reaching(edges, 1, 3).map(({ layer, edge, weight }) => [layer, edge.from, edge.to, weight]);
        return { edges: edges.map((layer) => layer.map(({ from, to, value, part }) => [from, to, value, part])), ways };
    })"""
    drawn = run(modules, "graph", work, payload({"m": found}))
    for layer, edges in zip(found.maps, drawn["edges"], strict=True):
        expected = {(int(j), i) for i in range(n) for j in np.argsort(-np.abs(layer[i]), kind="stable")[:2]}
        assert {(j, i) for j, i, _, _ in edges} == expected
        assert all(math.isclose(value, layer[i, j], rel_tol=1e-6) for j, i, value, _ in edges)
        for token in range(n):
            assert math.isclose(sum(part for _, i, _, part in edges if i == token), 1)
    for layer in range(3):  # what reaches a token adds up to all of it
        assert math.isclose(sum(weight for at, *_, weight in drawn["ways"] if at == layer), 1, rel_tol=0.05)


def test_joined_maps_are_not_followed_a_second_time(modules: Any) -> None:
    """What a token holds of the input at a layer is the row of that layer's map, and nothing below it."""
    found = wherefrom.explain("the deep film", tiny.model(), TOKENIZER, method="attention-rollout")
    work = """(graph, data) => import("/viewer/data.js").then(({ subjectsOf }) => {
        const state = { units: "pieces", kind: "joined", head: null, top: 0, order: "text", special: true };
        const box = graph.graphView.layout(subjectsOf(data)[0], state, 600);
        return graph.waysOf(graph.edgesOf(box, state), 1, 2, 1, true)
            .map((ways) => ways.map(({ layer, edge, weight }) => [layer, edge.from, edge.to, weight]));
    })"""
    into, out_of = run(modules, "graph", work, payload({"m": found}))
    assert found.aggregated is not None
    shares = found.aggregated / found.aggregated.sum(-1, keepdims=True)
    assert {layer for layer, *_ in into} == {0, 1}
    assert {layer for layer, *_ in out_of} == {1, 2}
    assert all(to == 1 for _, _, to, _ in into)
    assert all(source == 1 for _, source, _, _ in out_of)
    for layer, source, to, weight in into + out_of:
        assert math.isclose(weight, shares[layer, to, source], rel_tol=0.1)  # faint edges are left out of the sum


def test_csv_keeps_text_text(modules: Any) -> None:
    tokens = ["=1+1", '"', "a,b", "-", "@x", "line\nbreak", "ü"]
    given = Explanation.from_scores(tokens, np.arange(7.0), layer_scores=np.ones((1, 7)))
    work = """(each, data) => import("/viewer/data.js").then(({ subjectsOf }) =>
        each.toCsv(subjectsOf(data), { units: "pieces" }))"""
    text = run(modules, "export", work, payload({"m": given}))
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["method", "index", "token", "special", "score", "layer 0"]
    assert [row[2] for row in rows[1:]] == ["'=1+1", '"', "a,b", "-", "'@x", "line\nbreak", "ü"]
    assert [float(row[4]) for row in rows[1:]] == list(range(7))


def test_probabilities_are_written_as_in_the_terminal(modules: Any) -> None:
    given = [0.25, 0.0006, 0.0004, 0]
    assert run(modules, "data", "(each, data) => data.map(each.likely)", given) == ["0.25", "0.001", "< 0.001", "0"]


def test_marks_of_direction_turn_nothing_around(modules: Any) -> None:
    found = wherefrom.explain("the \u202e film", tiny.model(), TOKENIZER)
    work = """({ subjectsOf }, data) =>
        (({ tokens, gaps }) => [...tokens, ...gaps].join(""))(subjectsOf(data)[0].units.pieces)"""
    given = payload({"m": found})
    assert "\u202e" in str(given) or "\\u202e" in str(given)
    drawn = run(modules, "data", work, given)
    assert "film" in drawn
    assert "\u202e" not in drawn
