"""Prompts as a language model reads them: chats, texts cut before what follows them, words that stand for classes."""

from __future__ import annotations

from typing import Any

import pytest

import tiny
import wherefrom
from wherefrom.errors import InvalidInput, InvalidOption

GOOD_OR_BAD: Any = {"target": " good", "foil": " bad"}
SAID, CAT, DOG = (
    {"role": role, "content": text} for role, text in (("system", "he said"), ("user", "a cat"), ("assistant", "no"))
)


@pytest.mark.parametrize(
    ("template", "turns", "expected"),
    [
        (
            "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }} . {% endif %}{% endfor %}",
            [SAID, CAT],
            {"cat": "user", ".": "user"},
        ),
        ("{{ messages[-1].content }}", [SAID, CAT], {"a": "user", "cat": "user"}),
        (  # as Mistral's, which puts the system's words before the last of the user's
            "{% for m in messages if m.role != 'system' %}{% if loop.last %}{{ messages[0].content }} ! {% endif %}"
            "{{ m.content | trim }} . {% endfor %}",
            [{**SAID, "content": "deep film"}, {**CAT, "content": "dog"}, DOG, CAT],
            {"dog": "user 1", "film": "system", "cat": "user 2"},
        ),
        (  # what follows a turn is of that turn, also where it would begin otherwise without the turns after it
            "{% for m in messages if m.role != 'system' %}{% if loop.last %}{{ messages[0].content }} ! {% endif %}"
            "{{ m.content }} {{ 'the' if m.role == 'user' else 'good' }} {% endfor %}",
            [{**SAID, "content": "deep film"}, {**CAT, "content": "dog"}, {**DOG, "content": "cat"}],
            {"dog": "user", "the": "user", "film": "system", "cat": "assistant", "good": "assistant"},
        ),
        (  # as Qwen's, which leaves thoughts out
            "{% for m in messages %}{{ m.content.split('/')[-1] }} . {% endfor %}",
            [CAT, {**DOG, "content": "the film / good dog"}, {**CAT, "content": "deep"}],
            {"cat": "user 1", "dog": "assistant", "deep": "user 2"},
        ),
        (
            "the film{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
            [SAID],
            {"film": "template"},
        ),
        (  # which looks at contents
            "{% for m in messages %}{% if 'cat' in m.content %}the {% endif %}{{ m.content }} . {% endfor %}",
            [{**SAID, "content": "deep film"}, CAT],
            {"film": "system", "the": "user", "cat": "user"},
        ),
    ],
)
def test_turns_that_a_template_leaves_out_or_moves(
    template: str, turns: list[dict[str, str]], expected: dict[str, str]
) -> None:
    tokenizer = tiny.tokenizer(chat_template=template)
    tokenizer.backend_tokenizer.post_processor = None
    (read,), _ = wherefrom.open_model(tiny.model("llama", "causal-lm"), tokenizer).reader().read(turns)
    for token, segment in expected.items():
        assert {read.segments[i] for i, each in enumerate(read.tokens) if each == token} == {segment}, token


AGENT = (
    "{% for tool in tools or [] %}key {{ tool.function.name }} {% endfor %}{% if deep %}deep {% endif %}"
    "{% for m in messages %}{% if m.content is string %}{{ m.content }} {% elif m.content %}"
    "{% for part in m.content %}{{ part.text }} {% endfor %}{% endif %}"
    "{% for call in m.tool_calls or [] %}film {{ call.function.name }} {% endfor %}. {% endfor %}"
)
STRINGS = "{% for m in messages %}{{ m.content | trim }} . {% endfor %}"
TOOLS = [{"type": "function", "function": {"name": "cabinets", "parameters": {}}}]
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"type": "function", "function": {"name": "good", "arguments": {}}}],
}
RESULT, PARTS = {"role": "tool", "content": "bad dog"}, {"role": "user", "content": [{"type": "text", "text": "a cat"}]}


def chat_model(template: str) -> wherefrom.Model:
    tokenizer = tiny.tokenizer(chat_template=template)
    tokenizer.backend_tokenizer.post_processor = None
    return wherefrom.open_model(tiny.model("gpt2", "causal-lm"), tokenizer)


@pytest.mark.parametrize(
    ("how", "template"),
    [
        ({"tools": TOOLS}, {"tools": TOOLS}),
        ({"tokenizer_kwargs": {"tools": TOOLS, "deep": True}}, {"tools": TOOLS, "deep": True}),
        ({}, {}),
    ],
    ids=["tools", "tokenizer_kwargs", "neither"],
)
def test_the_prompt_of_an_agent_is_the_one_that_its_template_writes(how: Any, template: Any) -> None:
    opened, turns = chat_model(AGENT), [PARTS, CALL, RESULT]
    tokenizer = opened.tokenizer
    assert tokenizer is not None
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False, **template)
    expected = tokenizer.convert_ids_to_tokens(ids)
    for found in (
        wherefrom.explain(chat=turns, model=opened, method="saliency", **how),
        wherefrom.compare(chat=turns, model=opened, methods=["saliency"], **how)["saliency"],
        wherefrom.generate(chat=turns, model=opened, method="saliency", max_new_tokens=1, **how)[0],
    ):
        assert found.tokens[: len(expected)] == expected
    assert wherefrom.logit_lens(chat=turns, model=opened, **how).tokens == expected
    by = dict(zip(found.tokens, found.segments, strict=True))
    assert [by[token] for token in ("cat", "film", "good", "dog")] == ["user", "assistant", "assistant", "tool"]


def test_parts_are_joined_where_a_template_takes_strings_alone() -> None:
    two = {"role": "user", "content": [{"type": "text", "text": "a cat"}, {"type": "text", "text": "the dog"}]}
    found = wherefrom.explain(chat=[two, {**DOG, "content": "bad"}, CAT], model=chat_model(STRINGS), method="saliency")
    assert " ".join(found.tokens) == "a cat the dog . bad . a cat ."
    assert found.segments[:5] == ["user 1"] * 5


def test_what_a_chat_cannot_hold_is_refused() -> None:
    opened = chat_model(AGENT)
    picture = {"role": "user", "content": [{"type": "image", "url": "x.png"}]}
    for turns in ([picture], [{"role": "user", "content": None}], [{"role": "user", "content": 3}]):
        with pytest.raises(InvalidInput):
            wherefrom.explain(chat=turns, model=opened)
    with pytest.raises(InvalidOption):
        wherefrom.explain("a cat", opened, tools=TOOLS)
    with pytest.raises(InvalidOption):
        wherefrom.explain(chat=[CAT], model=opened, tokenizer_kwargs={"add_generation_prompt": False})


def test_a_text_is_cut_before_what_follows_it() -> None:
    text = " ".join(["film"] * 600)
    for target in (" are", " were in the house."):
        found = wherefrom.explain(text, "wherefrom/lm", method="saliency", target=target, truncate=True)
        assert len(found) == 512
        assert found.arguments["long"] == "truncate"
    foil = {"foil": " is here , now", "target": " were in the house."}
    both = wherefrom.explain(text, "wherefrom/lm", method="gradient-x-input", truncate=True, **foil)
    assert both.segments.count("prompt") <= found.segments.count("prompt") < 512
    with pytest.raises(wherefrom.WherefromError, match="shorten"):
        wherefrom.explain(text, "wherefrom/lm", method="saliency", target=" are")


@pytest.mark.parametrize("mark", ["-", ".", ",", ":", "..."])
def test_punctuation_after_a_blank_is_another_token_than_without_one(mark: str) -> None:
    lm = wherefrom.open_model("wherefrom/lm")
    with_blank, without = (
        wherefrom.explain("January 1", lm, method="saliency", target=each).target.index for each in (f" {mark}", mark)
    )
    assert lm.tokenizer.convert_ids_to_tokens([with_blank, without]) == [f"Ġ{mark}", mark]
    beside = wherefrom.explain("January 1", lm, method="saliency", target=" is", foil=f" {mark}")
    assert beside.target.foil == with_blank


def test_why_not_punctuation_after_a_blank() -> None:
    found = wherefrom.generate("January 1", "wherefrom/lm", method="gradient-x-input", max_new_tokens=1, alternatives=4)
    by_label = {str(each.foil_label): each.foil for each in found.steps[0].foils}
    assert {"Ġ-", "-"} <= by_label.keys()
    for asked, label in ((" -", "Ġ-"), ("Ġ-", "Ġ-"), ("-", "-")):
        assert found.why_not(0, asked).target.foil == by_label[label]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("January 1", {"Ġ-", "-", "Ġ2005"}),  # "2005" would go on with the number
        ("1914 – 1918, 1939", {"Ġ–"}),  # and not its bytes, ĠâĢĵ
        ("He died in 1955.", {"\\n"}),
        ("The caf", {"##é", "<0xC4>"}),
        ("in 1914 —", {"Ġthe"}),  # after a dash no blank is put in
    ],
)
def test_a_token_can_be_asked_for_by_the_name_by_which_it_is_listed(prompt: str, expected: set[str]) -> None:
    listed = wherefrom.explain(prompt, "wherefrom/lm", method="saliency").probabilities
    assert expected <= listed.keys()
    for name, p in listed.items():
        found = wherefrom.explain(prompt, "wherefrom/lm", method="saliency", target=name)
        assert found.target.kind == "token", name
        assert found.probabilities[found.target.label] == pytest.approx(p, abs=1e-6), name


def test_a_classification_by_words_that_stand_for_its_classes() -> None:
    """The example of docs/generation.md: "good" against "bad" after what is said of a film."""
    found = [
        wherefrom.explain(f"It was {film}. I thought it was very", "wherefrom/lm", method="attn-lrp", **GOOD_OR_BAD)
        for film in ("a deep and beautiful film", "a dull and stupid film")
    ]
    good, bad = (each.probabilities["good"] / each.probabilities["bad"] for each in found)
    assert good > 1 > bad
    beautiful, dull = (
        each.words().scores[each.words().tokens.index(word)]
        for each, word in zip(found, ("beautiful", "dull"), strict=True)
    )
    assert beautiful > 0 > dull
