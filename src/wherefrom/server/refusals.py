"""Requests that are not answered get a status, a sentence for people (`detail`) and a code for programs (`code`).

An error of wherefrom brings its own code, and its class has a status here. What the server itself refuses, before
anything is explained, has one code for each status.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from wherefrom.errors import (
    DamagedFile,
    InvalidOption,
    MissingExtra,
    ResourceUnavailable,
    UnknownName,
    WherefromError,
)


class Refusal(BaseModel):
    """Why a request is not answered."""

    detail: str  # a sentence, for people
    code: str  # for programs; docs/serve.md lists them


STATUS: dict[type[WherefromError], int] = {  # a class that has no line of its own has the status of the one above it
    WherefromError: 400,
    UnknownName: 404,
    InvalidOption: 422,
    DamagedFile: 500,
    MissingExtra: 501,
    ResourceUnavailable: 503,
}
OWN = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "request-timeout",
    413: "over-limit",
    415: "unsupported-media-type",
    422: "invalid-request",
    500: "internal-error",
    503: "busy",
}
CLOSING = {"status": 503, "detail": "the server is shutting down", "code": "closing"}
BROKEN = {
    "status": 500,
    "detail": "something went wrong inside wherefrom; the server's log says what",
    "code": OWN[500],
}


def described(error: WherefromError) -> dict[str, str]:
    """An error as a part of an answer."""
    return {"detail": str(error), "code": error.code}


def refusal(error: WherefromError) -> dict[str, Any]:
    """An error instead of an answer."""
    return {"status": status_of(type(error)), **described(error)}


def status_of(kind: type[WherefromError]) -> int:
    """The HTTP status of a class of errors."""
    return next(STATUS[each] for each in kind.__mro__ if each in STATUS)


def own_refusal(status: int, detail: str) -> dict[str, str]:
    """What the server itself refuses."""
    return {"detail": detail, "code": OWN.get(status, "error")}
