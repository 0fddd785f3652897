"""Words from the right among words from the left, and the other way round, as a browser puts them."""

from __future__ import annotations

import pytest
from matplotlib.text import Text

from wherefrom.result.explanation import Explanation


def read_from_the_left(words: list[str], **drawn: float) -> list[str]:
    picture = Explanation.from_scores(words, [1.0] * len(words), texts=(" ".join(words),), spans=spans(words)).plot(
        "text", **drawn
    )
    found = [each for each in picture.findobj(Text) if each.get_text() in words]
    places = sorted((-round(each.get_position()[1], 3), each.get_position()[0], each.get_text()) for each in found)
    return [text for _, _, text in places]


def spans(words: list[str]) -> list[tuple[int, int, int]]:
    starts = [len(" ".join([*words[:i], ""])) for i in range(len(words))]
    return [(0, start, start + len(word)) for start, word in zip(starts, words, strict=True)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("great film , مرحبا بالعالم good !", "great film , بالعالم مرحبا good !"),
        ("wonderful film مرحبا ، بالعالم !", "wonderful film بالعالم ، مرحبا !"),  # the last mark stays
        ("wonderful مرحبا 5 6 بالعالم indeed", "wonderful بالعالم 6 5 مرحبا indeed"),
        ("great film 5 6 good", "great film 5 6 good"),
        ("هذا فيلم جميل جدا great film !", "! great film جدا جميل فيلم هذا"),
    ],
)
def test_words_stand_in_the_order_of_a_browser(words: str, expected: str) -> None:
    assert read_from_the_left(words.split()) == expected.split()


def test_the_pieces_of_a_number_stay_in_order_among_words_from_the_right() -> None:
    text, tokens = "فيلم 1998 جميل", ["فيلم", "19", "98", "جميل"]
    places = [(0, 0, 4), (0, 5, 7), (0, 7, 9), (0, 10, 14)]
    picture = Explanation.from_scores(tokens, [1.0] * 4, texts=(text,), spans=places).plot("text")
    found = {each.get_text(): each.get_position()[0] for each in picture.findobj(Text) if each.get_text() in tokens}
    assert sorted(found, key=lambda token: found[token]) == ["جميل", "19", "98", "فيلم"]


def test_each_line_is_put_in_order_by_itself() -> None:
    """A run that goes on in the next line begins in the first, read from the right."""
    words = ["film", *(f"{letter}{letter}{letter}" for letter in "ابتثجحخدذر"), "good", *["film"] * 8]
    found = read_from_the_left(words, width=1.6)
    assert found[0] == "film"
    assert sorted(found) == sorted(words)
    after = found.index(words[1])
    assert found[1 : after + 1] == words[after:0:-1]  # the first line, and no word of the next
    assert after < 10
