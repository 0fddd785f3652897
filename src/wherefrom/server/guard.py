"""Who may ask: every request passes here before anything of it is read.

    Host      a name that belongs to this server. A page of another site whose name was turned to 127.0.0.1 after it was
              loaded (DNS rebinding) still sends its own name.
    Origin    this page itself, where a browser says who asks; Sec-Fetch-Site where it says no more than that.
    token     on any address that others can reach: in `Authorization: Bearer`, or in the cookie that the address
              printed at the start (`/?token=…`) sets.
    body      JSON, no longer than the limit, counted as it arrives: Content-Length is only a promise.

Every answer carries the headers that forbid the browser everything the page does not need.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from wherefrom.server.limits import Limits
from wherefrom.server.refusals import own_refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?", re.IGNORECASE)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Rules:
    """What this server is called, and what one must know to use it."""

    host: str = "127.0.0.1"  # the address it listens on
    names: tuple[str, ...] = ()  # further names by which it is reached
    token: str | None = None

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise ValueError("an address that others can reach needs a token")

    @property
    def cookie(self) -> str:
        """Its name: cookies do not tell the ports of a machine apart, so that two servers need two names."""
        return f"wherefrom-{hashlib.sha256((self.token or '').encode()).hexdigest()[:8]}"

    def knows(self, name: str) -> bool:
        """Whether a name in a Host header is one of this server's own."""
        name = name.casefold().rstrip(".")
        if name in {"localhost", self.host.casefold(), *(each.casefold() for each in self.names)}:
            return True
        if is_loopback(name):
            return True
        return not is_loopback(self.host) and _address(name) is not None  # nobody's DNS can turn a number


class Refused(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}


class Guard:
    """The application, guarded."""

    def __init__(self, app: App, rules: Rules, limits: Limits) -> None:
        self.app, self.rules, self.limits = app, rules, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no other protocol is spoken here; the server closes the connection
        send = self._outwards(send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._host(scope, headers)
            self._origin(scope, headers)
            self._token(scope, headers)
            body = await self._body(scope, headers, receive)
        except Refused as refused:
            await _answer(send, refused)
            return
        await self.app(scope, _again(body, receive), send)

    def _outwards(self, send: Send) -> Send:
        """Add the headers to every answer, and drop a client that takes none of it."""

        async def outwards(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message.setdefault("headers", [])}
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
                message["headers"] = [*message["headers"], *extra]
            async with asyncio.timeout(self.limits.patience):
                await send(message)

        return outwards

    def _host(self, scope: Scope, headers: dict[str, str]) -> None:
        given = [value for name, value in scope["headers"] if name.lower() == b"host"]
        found = HOST.fullmatch(headers.get("host", "")) if len(given) == 1 else None
        if found is None:
            raise Refused(400, "the request does not say which host it is for; expected one Host header")
        if not self.rules.knows(found[1].strip("[]")):
            raise Refused(
                403,
                f"this server is not called {found[1]!r}; use the address printed at its start, or start it with "
                f"--allow-host {found[1]}",
            )

    def _origin(self, scope: Scope, headers: dict[str, str]) -> None:
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].casefold() != headers["host"].casefold():
            raise Refused(403, "a page of another site may not use this server")
        reads = scope["method"] in ("GET", "HEAD") and not scope["path"].startswith("/api")
        if not reads and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Refused(403, "a page of another site may not use this server")

    def _token(self, scope: Scope, headers: dict[str, str]) -> None:
        if self.rules.token is None:
            return
        if scope["path"] == "/" and scope["method"] == "GET":
            given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [])
            if any(self._matches(each) for each in given):
                cookie = f"{self.rules.cookie}={self.rules.token}; Path=/; HttpOnly; SameSite=Lax"
                raise Refused(303, "", {"location": "/", "set-cookie": cookie})
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.casefold() == "bearer" and self._matches(bearer.strip()):
            return
        if self._matches(_cookie(headers.get("cookie", ""), self.rules.cookie)):
            return
        raise Refused(
            401,
            "this server asks for its token; open the whole address that `wherefrom serve` printed, or send the token "
            "as 'Authorization: Bearer …'",
            {"www-authenticate": "Bearer"},
        )

    def _matches(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self.rules.token or "").encode())

    async def _body(self, scope: Scope, headers: dict[str, str], receive: Receive) -> bytes:
        most = self.limits.body
        too_much = Refused(413, f"the request is longer than {most:,} bytes; send fewer or shorter texts")
        promised = headers.get("content-length", "0")
        if promised.isdecimal() and int(promised) > most:
            raise too_much
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.patience):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Refused(400, "the request ended before it was complete")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise too_much
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Refused(408, f"the request did not arrive within {self.limits.patience:.0f} seconds") from None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            raise Refused(415, "expected JSON, sent as application/json")
        return b"".join(parts)


def is_loopback(host: str) -> bool:
    address = _address(host)
    return host.casefold() == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, and after it whatever else the client does."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _answer(send: Send, refused: Refused) -> None:
    body = json.dumps(own_refusal(refused.status, refused.detail)).encode() if refused.detail else b""
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers}
    if refused.status in (408, 413):
        headers["connection"] = "close"  # the rest of the request is not read
    start = {"type": "http.response.start", "status": refused.status}
    await send({**start, "headers": [(name.encode(), value.encode()) for name, value in headers.items()]})
    await send({"type": "http.response.body", "body": body})
