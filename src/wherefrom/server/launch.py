"""Starting the server: an address, the models, a browser."""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import uvicorn

from wherefrom import zoo
from wherefrom.errors import InvalidOption, ResourceUnavailable
from wherefrom.server.app import guarded
from wherefrom.server.catalog import opened_by_name
from wherefrom.server.guard import Rules, is_loopback
from wherefrom.server.limits import Limits
from wherefrom.server.queue import JobQueue

TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")


def run(
    models: Sequence[str] = (),
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    names: Sequence[str] = (),
    token: str | None = None,
    browse: bool = True,
    device: str | None = None,
    limits: Limits | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted. The shipped models where none is named; a token is made where one is needed."""
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    if token is not None and not TOKEN.fullmatch(token):
        raise InvalidOption("the token is too short or has odd characters; expected 16 or more letters and digits")
    limits = limits or Limits()
    bound = _bound(host, port)
    opened = opened_by_name(models or _shipped(), device)
    own = (*names, *(() if is_loopback(host) else (socket.gethostname(),)))
    line = JobQueue(limits)
    app = guarded(opened, Rules(host, own, token), limits, line)
    address = f"http://{_written(host)}:{bound.getsockname()[1]}/" + (f"?token={token}" if token else "")
    server = Server(app, line, limits)
    say(f"wherefrom is at {address}  ({', '.join(opened)}; stop with Ctrl-C)")
    if browse and _has_screen():
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    server.run(sockets=[bound])


class Server(uvicorn.Server):
    """uvicorn's, which on its way out first lets those who wait know; what is left after four seconds is cut off."""

    def __init__(self, app: Any, line: JobQueue, limits: Limits) -> None:
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=4,
            ws="none",
        )
        super().__init__(config)
        self._line = line

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._line.shut()
        await super().shutdown(sockets)


def _shipped() -> list[str]:
    """The sentiment model first: it is the one the page opens with. That of pictures where something can read them."""
    left_out = [] if find_spec("PIL") else [zoo.IMAGES]
    return sorted(zoo.names(but=left_out), key=lambda name: (name != "wherefrom/sentiment", name))


def _bound(host: str, port: int) -> socket.socket:
    """A socket before any model is opened, so that a port in use is said at once."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        found = socket.socket(family, kind)
        if os.name == "posix":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ResourceUnavailable(
            f"cannot listen on {host}, port {port}: {reason}; choose another with --port or --host"
        ) from error
    return found


def _written(host: str) -> str:
    """As it stands in an address; a wildcard as this machine's name."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _has_screen() -> bool:
    """Without one, a text browser would take over the terminal."""
    return not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
