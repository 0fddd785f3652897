"""A text is tokenised once, whatever is made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

import tiny
import wherefrom
from wherefrom.cli import app
from wherefrom.metric.spotcheck import checks

TEXT = "the cat is good and the film was not"
LONG = "the cat is good and the dog was bad , not a film of keys to the cabinets ! " * 6
pytestmark = pytest.mark.filterwarnings("ignore::wherefrom.errors.WherefromWarning")


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every text that a tokenizer of the kind used here has been given, words of a target left out."""
    kind = type(tiny.tokenizer())
    own: Callable[..., Any] = kind._encode_plus
    texts: list[Any] = []

    def counted(self: Any, text: Any, *args: Any, **kwargs: Any) -> Any:
        if " " in str(text):
            texts.append(text)
        return own(self, text, *args, **kwargs)

    monkeypatch.setattr(kind, "_encode_plus", counted)
    return texts


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"method": "attcat", "target": "all"},
        {"method": "alti", "position": "film"},
        {"estimate": True},
        {"baseline": 59},
    ],
    ids=str,
)
def test_explain_reads_a_text_once(readings: list[Any], more: dict[str, Any]) -> None:
    wherefrom.explain(TEXT, tiny.model(), tiny.tokenizer(), **more)
    assert readings == [TEXT]


def test_explain_in_windows_reads_a_text_once(readings: list[Any]) -> None:
    wherefrom.explain(LONG, tiny.model(), tiny.tokenizer(), "attcat", long="windows")
    assert readings == [LONG]


def test_each_of_several_inputs_is_read_once(readings: list[Any]) -> None:
    every = [TEXT, "the film", "a cat and a dog"]
    wherefrom.explain(every, tiny.model(), tiny.tokenizer(), "attcat", batch_size=2)
    list(wherefrom.explain_stream(every, tiny.model(), tiny.tokenizer(), "attcat", batch_size=2))
    assert readings == [*every, *every]


def test_compare_reads_a_text_once_for_all_methods(readings: list[Any]) -> None:
    wherefrom.compare(TEXT, tiny.model(), tiny.tokenizer(), ["attcat", "alti", "ablation", "ablation(by=59999)"])
    assert readings == [TEXT]


def test_checks_read_a_text_once_for_all_methods(readings: list[Any]) -> None:
    opened = wherefrom.open_model(tiny.model(), tiny.tokenizer())
    (sentence,), _ = opened.reader().read(TEXT)
    found = wherefrom.compare(sentence, opened, methods=["attcat", "alti"])  # type: ignore[arg-type]
    assert len(list(checks(list(found.values()), opened, sentence=sentence))) == 2
    assert readings == [TEXT]
    assert len(list(checks(list(found.values()), opened))) == 2  # without the sentence, once for both
    assert readings == [TEXT, TEXT]


def test_the_server_reads_a_text_once_with_its_evidence(readings: list[Any]) -> None:
    pytest.importorskip("fastapi", reason="the server needs the extra `serve`")
    from wherefrom.server import handlers
    from wherefrom.server.limits import Limits
    from wherefrom.server.queue import Talk

    opened, talk = wherefrom.open_model(tiny.model(), tiny.tokenizer()), Talk(lambda: None, lambda _event: None)
    compare = handlers.CompareBody(inputs=TEXT, methods=["attcat", "alti"], evidence=True)
    explain = handlers.ExplainBody(inputs=TEXT, method="attcat", evidence=True)
    asked = ((handlers.told, compare), (handlers.compared, compare), (handlers.explained, explain))
    for handle, body in asked:
        readings.clear()
        events = list(handle(body, opened, Limits(), talk))  # type: ignore[operator]
        assert not [event for event in events if event["event"] in ("failed", "error")]
        assert readings == [TEXT]


@pytest.mark.parametrize("command", [["explain", "--method", "attcat"], ["compare", "--methods", "attcat,alti"]])
def test_the_command_reads_a_text_once_with_its_check(readings: list[Any], command: list[str]) -> None:
    text = "a deep and meaningful film ."
    found = CliRunner().invoke(app, [*command, text, "--check"], catch_exceptions=False)
    assert found.exit_code == 0
    assert "Without its top" in found.output.replace("\n", " ")
    assert readings == [text]


@pytest.mark.parametrize(
    "more", [{"target": "good"}, {"target": "good", "foil": "bad"}, {"target": "good bad"}], ids=str
)
def test_a_word_after_a_prompt_is_read_with_it_once(readings: list[Any], more: dict[str, Any]) -> None:
    wherefrom.compare(
        TEXT, tiny.model("llama", "causal-lm"), tiny.tokenizer(), methods=["saliency", "ablation"], **more
    )
    assert [each for each in readings if TEXT in each] == [TEXT, *(f"{TEXT} {each}" for each in more.values())]
