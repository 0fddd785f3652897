"""A text after a prompt: parted by a blank where words are, and as it is written elsewhere."""

from __future__ import annotations

import pytest

import wherefrom
from wherefrom.errors import InvalidOption, InvalidTarget
from wherefrom.model.following import as_it_follows


@pytest.mark.parametrize(
    ("prompt", "text", "there"),
    [
        ("The capital of France is", "Paris", " Paris"),
        ("The capital of France is", " Paris", " Paris"),
        ("The capital of France is ", "Paris", "Paris"),
        ("Once upon a time", ", the old man", ", the old man"),
        ("Once upon a time", "!", "!"),
        ("He said.", "Then he left", " Then he left"),
        ("The cat", "##s are here", "s are here"),
        ("The cat", "s are here", " s are here"),
        ("In 19", "45, the war", "45, the war"),
        ("2 + 2 =", "4", " 4"),
        ('He said: "', "I am here", "I am here"),
        ('He said: "I am here', '" and left', '" and left'),
        ("He said", '"I am here"', ' "I am here"'),
        ("He said", "'I am here'", " 'I am here'"),
        ("I don", "'t know what I don't", "'t know what I don't"),
        ("John", "'s dog", "'s dog"),
        ("It costs", "$5", " $5"),
        ("It costs $", "5", "5"),
        ("It costs 5 €", "per day", " per day"),
        ("the house (", "old", "old"),
        ("the house", "(old)", " (old)"),
        ("a well-", "known man", "known man"),
        ("日本", "元.", "元."),
        ("I ❤️", "🍕", "🍕"),
        ("The end", "</s>", "</s>"),
        ("", "Paris", " Paris"),
    ],
)
def test_a_blank_parts_words_alone(prompt: str, text: str, there: str) -> None:
    assert as_it_follows(prompt, text) == there


def test_what_was_said_is_explained_as_it_was_said() -> None:
    said = wherefrom.generate("Once upon a time", model="wherefrom/lm", method="gradient-x-input", max_new_tokens=3)
    again = wherefrom.explain(
        "Once upon a time", model="wherefrom/lm", method="gradient-x-input", of="log-probability", target=said.text
    )
    assert again.target.tokens == tuple(said.ids[said.start :])
    comma = wherefrom.explain("Once upon a time", model="wherefrom/lm", method="gradient-x-input", target=",")
    assert comma.target.index == said.ids[said.start]
    assert comma.target.label == ","


def test_letters_of_several_tokens_are_written_once() -> None:
    said = wherefrom.generate("日本", model="wherefrom/lm", method="gradient-x-input", target="元.")
    assert said.tokens == ["元"] * (len(said) - 1) + ["."]
    bytes_of_it = ["<0xE5>", "<0x85>", "<0x83>"]  # by their numbers, and not by "ĥ": each has its own probability
    assert [each.target.label for each in said] == [*bytes_of_it, "."]
    assert all(each.target.label in each.probabilities for each in said)
    assert said[:].target.label == "元."
    assert said.over("prompt").target.label == "元."


def test_tokens_added_up_have_no_arguments() -> None:
    said = wherefrom.generate("Once upon a time", model="wherefrom/lm", method="gradient-x-input", target=", the")
    for found in (said[:], said.over("prompt")):
        with pytest.raises(InvalidOption, match="several tokens of a generation"):
            assert found.arguments
    assert said[1].arguments["target"] == said.ids[-1]


def test_with_a_foil_methods_with_signs_are_named() -> None:
    with pytest.raises(InvalidTarget) as raised:
        wherefrom.explain("Paris is", model="wherefrom/lm", target=" a city", foil=" a river", method="alti")
    assert "gradient-x-input" in str(raised.value)
    assert "saliency" not in str(raised.value)


@pytest.mark.parametrize("prompt", ["The old man walked to the u", "The dogs in the garden", "In 19", 'He said, "'])
def test_a_token_that_is_listed_can_be_asked_for_by_its_name(prompt: str) -> None:
    listed = wherefrom.explain(prompt, model="wherefrom/lm", method="gradient-x-input").candidates
    for name, token in listed.items():
        asked = wherefrom.explain(prompt, model="wherefrom/lm", method="gradient-x-input", target=name).target
        assert (asked.kind, asked.index, asked.label) == ("token", token, name)
    assert any(name.startswith("##") for name in listed) == prompt.endswith(" u")  # it goes on with this word
