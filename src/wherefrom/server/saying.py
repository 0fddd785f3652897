"""What a language model says, and where it comes from: `generate`, and why one token was said rather than another.

`generated` gives what Python gives, as one event. `streamed` gives the text as it is said, then where it comes from:

    {"event": "said", "text": " of the"}                  letter by letter what stands after the prompt
    {"event": "progress", "doing": "where it comes from"}
    {"event": "generation", "generation": {…}}            or "payload", for the viewer
    {"event": "done", "seconds": 0.8}
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from wherefrom.api import explain
from wherefrom.defaults import DEFAULT_METHOD
from wherefrom.errors import InvalidInput, InvalidOption, OverLimit
from wherefrom.generating import followed, generate, refuse_phrase, refuse_silent, spoken_by
from wherefrom.method import choose
from wherefrom.model import Model
from wherefrom.model.phrase import in_letters
from wherefrom.pipeline.auto import is_default
from wherefrom.server.bodies import Choice, MethodName, Text
from wherefrom.server.handlers import interruptible, refuse_large_numbers
from wherefrom.server.limits import Limits
from wherefrom.server.queue import Event, Talk

TOKEN = Annotated[int, Field(ge=0, le=10_000_000)]
METHOD = Field(
    DEFAULT_METHOD,
    description="One of /api/methods, or auto (alti-logit, of a translator alti); with options: name(option=value).",
)
MODEL = Field(None, max_length=300, description="One of /api/models that says something (default: the first of these).")


class ChatTurn(BaseModel):
    """One turn of a chat."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: Text


class GenerateBody(BaseModel):
    """`wherefrom.generate`"""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    prompt: Text | None = Field(
        None,
        description="A text to go on from, or to translate.",
        examples=["Alice gave the book to Bob because"],
    )
    chat: list[ChatTurn] | None = Field(None, max_length=64, description="Turns of a chat, in place of a prompt.")
    target: Text | None = Field(None, description="A text that is taken as said, so that nothing is generated.")
    model: str | None = MODEL
    method: MethodName = METHOD
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)] = 20
    temperature: Annotated[float, Field(ge=0.01, le=10)] | None = Field(
        None, description="Sample at this temperature instead of the likeliest token."
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(None, description="Of a sampled answer.")
    alternatives: Annotated[int, Field(ge=0, le=3)] = Field(0, description="Foils of each token that come along.")
    form: Literal["generation", "viewer"] = Field(
        "generation", description="What Generation.from_dict reads, or the viewer's packed payload."
    )


class WhyNotBody(BaseModel):
    """Why a language model said one token rather than another."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    ids: list[TOKEN] = Field(
        min_length=1, max_length=100_000, description="All tokens before it; of a translator, the source."
    )
    decoder_ids: list[TOKEN] | None = Field(
        None, min_length=1, max_length=100_000, description="Of a translator: its start token and what it has written."
    )
    target: TOKEN = Field(description="The token that was said: its id.")
    foil: Choice = Field(description="Another: its id, or a word.")
    model: str | None = MODEL
    method: MethodName = METHOD


def check_generate(asked: GenerateBody, limits: Limits) -> None:
    """Refuse what can be refused before the request waits in line."""
    if (asked.prompt is None) == (asked.chat is None):
        raise InvalidInput("expected either a prompt or a chat")
    size = len(asked.prompt or "") + len(asked.target or "") + sum(len(turn.content) for turn in asked.chat or ())
    if size > limits.characters:
        raise OverLimit(f"{size:,} characters; this server takes at most {limits.characters:,}: shorten it")
    if asked.max_new_tokens > limits.said:
        raise OverLimit(
            f"max_new_tokens={asked.max_new_tokens}; on this server a model says at most {limits.said} tokens"
        )
    given = {name: getattr(asked, name) for name in ("max_new_tokens", "temperature", "seed")}
    sent = [name for name, each in given.items() if name in asked.model_fields_set and each is not None]
    if asked.target is not None and sent:
        raise InvalidOption(f"a target is taken as said, and nothing is generated; leave {' and '.join(sent)} out")
    if asked.seed is not None and asked.temperature is None:
        raise InvalidOption("seed is of a sampled answer; give a temperature with it, or leave it out")
    _refuse_long_work(asked.method)


def check_why_not(asked: WhyNotBody, limits: Limits) -> None:
    before = len(asked.ids) + len(asked.decoder_ids or ())
    if before > limits.tokens:
        raise OverLimit(f"{before} tokens; this server reads at most {limits.tokens}")
    _refuse_long_work(asked.method)


def _refuse_long_work(method: str) -> None:
    if not is_default(method):
        refuse_large_numbers(choose(method))


def generated(asked: GenerateBody, opened: Model, limits: Limits, talk: Talk) -> Iterator[Event]:
    """One event with what `wherefrom.generate` returns."""
    return interruptible(opened, talk, _generated(asked, opened, limits, None))


def streamed(asked: GenerateBody, opened: Model, limits: Limits, talk: Talk) -> Iterator[Event]:
    """The text as it is said, and then where it comes from."""
    return interruptible(opened, talk, _generated(asked, opened, limits, _Heard(opened, talk)))


def why_not(asked: WhyNotBody, opened: Model, _: Limits, talk: Talk) -> Iterator[Event]:
    """One event: the scores of a token rather than another, over all tokens before it."""
    return interruptible(opened, talk, _why_not(asked, opened))


class _Heard:
    """Listens to `model.generate`: each token as it is said, in letters."""

    def __init__(self, opened: Model, talk: Talk) -> None:
        self.opened, self.talk = opened, talk
        self.ids: list[int] | None = None  # None: the prompt has not come yet
        self.told = 0  # letters

    def put(self, value: Any) -> None:
        if self.ids is None:
            self.ids = []
            return
        self.ids += [int(i) for i in value.flatten()]
        text = in_letters(self.opened, self.ids)
        whole = text.rstrip("\ufffd")  # of a character whose bytes are several tokens, when it is there
        if len(whole) > self.told:
            self.talk.say({"event": "said", "text": whole[self.told :]})
            self.told = len(whole)

    def end(self) -> None:
        self.talk.say({"event": "progress", "doing": "where it comes from"})


def _generated(asked: GenerateBody, opened: Model, limits: Limits, heard: _Heard | None) -> Iterator[Event]:
    begin = time.perf_counter()
    refuse_silent(opened)  # before it reads: to a model of pictures a text is the path of a file on this machine
    prompt: Any = asked.prompt if asked.chat is None else [turn.model_dump() for turn in asked.chat]
    (sentence,), _ = opened.reader().read(prompt)
    if asked.target is None:
        _refuse_long(len(sentence), asked.max_new_tokens, limits)
    else:
        _refuse_long(len(sentence), len(followed(opened, sentence, asked.target)) - len(sentence), limits)
    found = generate(
        sentence,
        opened,
        method=asked.method,
        target=asked.target,
        alternatives=asked.alternatives,
        **_sampling(asked, heard),
    )
    if asked.form == "viewer":
        from wherefrom.view.said_html import payload

        shown = {"payload": payload(found)}
    else:
        shown = {"generation": found.to_dict()}
    if heard is None:
        yield {"event": "result", "result": next(iter(shown.values()))}
        return
    yield {"event": "generation", **shown}
    yield {"event": "done", "seconds": round(time.perf_counter() - begin, 3)}


def _sampling(asked: GenerateBody, heard: _Heard | None) -> dict[str, Any]:
    """How the answer is drawn, and who listens; nothing of a text that is given."""
    if asked.target is not None:
        return {}
    drawn = {} if asked.temperature is None else {"temperature": asked.temperature, "seed": asked.seed}
    return {
        "max_new_tokens": asked.max_new_tokens,
        "do_sample": bool(drawn),
        **drawn,
        **({} if heard is None else {"num_beams": 1, "streamer": heard}),
    }


def _refuse_long(prompt: int, more: int, limits: Limits) -> None:
    """What is longer than this server reads; what is longer than the model reads, `generate` refuses itself."""
    if prompt + more - 1 > limits.tokens:
        raise OverLimit(
            f"the prompt has {prompt} tokens and the answer may have {more}; together they may have "
            f"{limits.tokens} here: shorten the prompt, or ask for fewer tokens"
        )


def _why_not(asked: WhyNotBody, opened: Model) -> Iterator[Event]:
    refuse_silent(opened)
    if opened.two_streams and asked.decoder_ids is None:
        raise InvalidInput(
            f"what {opened.name} has written so far is missing; give its tokens as decoder_ids, the start token first"
        )
    written = {} if asked.decoder_ids is None else {"decoder_input_ids": asked.decoder_ids}
    found: Any = explain(
        {"input_ids": asked.ids, **written},
        opened,
        method=spoken_by(opened, asked.method),
        target=asked.target,
        foil=asked.foil,
        keep="scores",
    )
    refuse_phrase(found, len(asked.ids) + len(asked.decoder_ids or ()), asked.foil)
    target = found.target
    yield {
        "event": "result",
        "result": {
            "token": target.foil,
            "name": target.foil_label,
            "probability": found.probabilities.get(str(target.foil_label)),
            "explained": found.explained,
            "scores": found.scores.tolist(),
        },
    }
