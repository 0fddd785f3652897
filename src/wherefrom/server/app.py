"""The application: what can be asked over HTTP. `/api/openapi.json` describes it to programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

from wherefrom.errors import UnknownName, WherefromError
from wherefrom.model import Model
from wherefrom.server import bodies, handlers, saying
from wherefrom.server.catalog import examples, method_cards, model_cards, says
from wherefrom.server.guard import Guard, Rules
from wherefrom.server.limits import Limits
from wherefrom.server.queue import CLOSED, Closed, Event, Full, JobQueue, Waiting, encoded
from wherefrom.server.refusals import BROKEN, CLOSING, Refusal, own_refusal, refusal
from wherefrom.server.static import File, page_files
from wherefrom.version import __version__

NDJSON = "application/x-ndjson"
ABOUT = (
    "Where a Transformer's answer comes from, as JSON. Names and meanings are those of the Python package: the answer "
    "of `/api/explain` is read by `Explanation.from_dict`, that of `/api/compare` by `Comparison.from_dict`, that of "
    "`/api/generate` by `Generation.from_dict`. Closing "
    'the connection cancels a request. Every error is `{"detail": "a sentence", "code": "a-word"}`.'
)
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": about, "model": Refusal}
    for status, about in {
        400: "What was asked cannot be answered; `detail` says why.",
        404: "No model or method has this name.",
        413: "The request is too long.",
        422: "The request is not of the form described here, or an option has a value that it cannot have.",
        503: "Too many requests wait, and `Retry-After` says in how many seconds to come back; or memory is short.",
    }.items()
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "What Python returns; or, with `Accept: application/x-ndjson`, one event a line as it is done.",
        "content": {"application/json": {}, NDJSON: {}},
    }
}


def guarded(
    opened: Mapping[str, Model], rules: Rules | None = None, limits: Limits | None = None, line: JobQueue | None = None
) -> Guard:
    """The whole application for these models, by the names they may be asked for."""
    limits = limits or Limits()
    return Guard(application(opened, limits, line or JobQueue(limits)), rules or Rules(), limits)


def application(opened: Mapping[str, Model], limits: Limits, line: JobQueue) -> FastAPI:
    """The application without its guard."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        line.start()
        yield
        await asyncio.to_thread(line.close)

    app = FastAPI(
        title="wherefrom",
        version=__version__,
        description=ABOUT,
        openapi_url="/api/openapi.json",
        docs_url=None,  # its scripts would come from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    _errors(app)
    _questions(app, opened, limits, line)
    _answers(app, opened, limits, line)
    for path, file in page_files().items():
        app.add_api_route(path, partial(_file, file), methods=["GET"], include_in_schema=False)
    return app


def _file(file: File) -> Response:
    return Response(file.content, media_type=file.kind, headers={"cache-control": "no-cache"})


# What is known --------------------------------------------------------------------------------------------


def _questions(app: FastAPI, opened: Mapping[str, Model], limits: Limits, line: JobQueue) -> None:
    models, methods, sentences = model_cards(opened), method_cards(), examples(opened)

    @app.get("/api/health", summary="Whether the server is well, and how many wait")
    async def health() -> dict[str, Any]:
        return {
            "status": "ok",
            "version": __version__,
            "models": list(opened),
            "working": line.working,
            "waiting": line.waiting,
            "unsent": line.unsent,
        }

    @app.get("/api/models", summary="The models that can be asked, the first of them by default")
    async def model_list() -> dict[str, Any]:
        return {
            "models": models,
            "limits": {each: getattr(limits, each) for each in ("characters", "tokens", "said", "methods")},
        }

    @app.get("/api/methods", summary="The methods with their papers, options and aggregations")
    async def method_list() -> dict[str, Any]:
        return methods

    @app.get("/api/examples", summary="Sentences of the papers, for these models")
    async def example_list() -> dict[str, Any]:
        return {"examples": sentences}


# What is asked --------------------------------------------------------------------------------------------


def _answers(app: FastAPI, opened: Mapping[str, Model], limits: Limits, line: JobQueue) -> None:
    speaker = next((name for name, each in opened.items() if says(each)), None)

    @app.post("/api/explain", summary="One method (wherefrom.explain)", responses={**ERRORS, **STREAM})
    async def explain(asked: bodies.ExplainBody, request: Request) -> Response:
        return await answer(asked, request, handlers.explained)

    @app.post("/api/compare", summary="Several methods (wherefrom.compare)", responses={**ERRORS, **STREAM})
    async def compare(asked: bodies.CompareBody, request: Request) -> Response:
        streams = NDJSON in request.headers.get("accept", "")
        return await answer(asked, request, handlers.told if streams else handlers.compared)

    @app.post("/api/generate", summary="A language model's answer (wherefrom.generate)", responses={**ERRORS, **STREAM})
    async def generate(asked: saying.GenerateBody, request: Request) -> Response:
        how = saying.streamed if NDJSON in request.headers.get("accept", "") else saying.generated
        return await answer(asked, request, how, saying.check_generate, speaker)

    @app.post("/api/why-not", summary="Why one token was said rather than another", responses=ERRORS)
    async def why_not(asked: saying.WhyNotBody, request: Request) -> Response:
        return await answer(asked, request, saying.why_not, saying.check_why_not, speaker)

    async def answer(
        asked: Any,
        request: Request,
        how: Callable[..., Iterator[Event]],
        check: Callable[[Any, Limits], None] = handlers.check_request,
        default: str | None = None,
    ) -> Response:
        model = _model(opened, default if asked.model is None else asked.model)
        check(asked, limits)
        try:
            job = line.enter(partial(how, asked, model, limits))
        except Full:
            raise HTTPException(
                503,
                f"{limits.waiting} requests wait already; come back in a few seconds",
                {"Retry-After": "5"},
            ) from None
        except Closed:
            return _refused(CLOSING)
        if how in (handlers.told, saying.streamed):
            return Told(line, job, (text async for _, text in line.events(job)), NDJSON)
        return await _whole(request, line, job)


class Told(StreamingResponse):
    """A job's answer on its way to the client; however that ends, the job is over."""

    def __init__(self, line: JobQueue, job: Waiting, content: AsyncIterator[bytes], kind: str) -> None:
        super().__init__(content, media_type=kind)
        self.line, self.job = line, job

    async def __call__(self, *asgi: Any) -> None:
        try:
            await super().__call__(*asgi)
        finally:
            self.line.leave(self.job)


async def _whole(request: Request, line: JobQueue, job: Waiting) -> Response:
    """The one event of a job as an answer with its status, unless the client leaves before."""
    source = line.events(job)
    first = asyncio.ensure_future(_first(source))
    left = asyncio.ensure_future(_left(request))
    await asyncio.wait({first, left}, return_when=asyncio.FIRST_COMPLETED)
    left.cancel()
    if not first.done():
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        return Response(status_code=499)  # nobody reads this
    kind, text = first.result()
    if kind == "error":
        async for _ in source:
            pass
        said = json.loads(text)
        return _refused(said)
    return Told(line, job, _rest(source, text), "application/json")


async def _first(source: AsyncIterator[tuple[str, bytes]]) -> tuple[str, bytes]:
    async for kind, text in source:
        if kind != "waiting":
            return kind, text
    return "error", encoded(CLOSED)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _rest(source: AsyncIterator[tuple[str, bytes]], text: bytes) -> AsyncIterator[bytes]:
    """The result. Its bytes count as unsent until they are taken, which is when more is asked of the source."""
    yield text
    async for _ in source:
        pass


def _model(opened: Mapping[str, Model], name: str | None) -> Model:
    if name is None:
        return next(iter(opened.values()))
    if name not in opened:
        raise UnknownName(
            f"no model is called {name!r} here; there are: {', '.join(opened)} (others are named at the start)"
        )
    return opened[name]


# What goes wrong ------------------------------------------------------------------------------------------


def _errors(app: FastAPI) -> None:
    @app.exception_handler(WherefromError)
    async def wherefrom_error(_: Request, error: WherefromError) -> JSONResponse:
        return _refused(refusal(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse(own_refusal(422, _sentence(error)), 422)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        detail = str(error.detail)
        if error.status_code == 404 and detail == "Not Found":
            detail = f"there is nothing at {request.url.path}; /api/openapi.json lists what there is"
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            detail = f"{request.url.path} does not answer {request.method}; send {allowed}"
        return JSONResponse(own_refusal(error.status_code, detail), error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def broken(_: Request, __: Exception) -> JSONResponse:
        return _refused(BROKEN)


def _refused(said: Mapping[str, Any]) -> JSONResponse:
    return JSONResponse({"detail": said["detail"], "code": said["code"]}, said["status"])


def _sentence(error: RequestValidationError) -> str:
    """The first thing that is wrong with a request, in words."""
    every = error.errors()
    # Where several types are allowed, one complaint for each: the one about the value says more than those about types.
    alike = [each for each in every if each["loc"][:2] == every[0]["loc"][:2]]
    first = next((each for each in alike if not each["type"].endswith(("_type", "_parsing"))), every[0])
    where = [str(part) for part in first["loc"] if part != "body"]
    if first["type"] == "json_invalid":
        return 'the request is not JSON; expected an object such as {"inputs": "a text"}'
    if first["type"] == "extra_forbidden":
        return f"unknown field {where[-1]!r}; /api/openapi.json describes every field"
    if not where:
        return 'the request is no object, or an empty one; expected one such as {"inputs": "a text"}'
    message = str(first["msg"])
    of_kind = first["type"].endswith("_type") or first["type"] in ("missing", "too_long", "too_short")
    if where[0] == "inputs" and len(where) > 1 and of_kind and (first["type"], where[-1]) != ("missing", "image"):
        message = 'expected a text, an image {"image": …}, or a list of texts, of pairs [text, text] or of images'
    elif where[0] == "layers":
        message = "expected [start, end] as in a slice, either of them null where it is open, or null for all layers"
    elif first["type"] == "missing" and len(where) > 1:
        message = f"an object without {where[-1]!r}; a text is written as a string"
    field = f"options: {where[1]}" if where[0] == "options" and len(where) > 1 else where[0]
    return f"{field}: {message[:1].lower()}{message[1:]}; /api/openapi.json describes every field"
