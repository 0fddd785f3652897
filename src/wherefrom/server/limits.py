"""How much one request, and all of them together, may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What the server takes on."""

    characters: int = 10_000  # of one text, both parts of a pair together
    pixels: int = 4_000_000  # of one image
    tokens: int = 512  # that a model reads of one text
    said: int = 256  # tokens that a language model says after a prompt
    inputs: int = 16  # texts in one request
    methods: int = 16
    body: int = 256 * 1024  # bytes of a request
    numbers: int = 2_000_000  # in one answer, as JSON; packed for the viewer a number takes an eighth of the room
    seconds: float = 120.0  # that one request may work
    waiting: int = 256  # requests in line; the next one is told to come back
    unsent: int = 128 * 1024 * 1024  # bytes of answers that their readers have not taken yet
    patience: float = 30.0  # seconds for a request to arrive, and for a piece of an answer to be taken
    connections: int = 1024
