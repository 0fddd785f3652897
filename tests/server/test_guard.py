"""Who may ask: names, origins, tokens, sizes."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from server.conftest import HERE, client_of, listening
from wherefrom.cli import app
from wherefrom.errors import WherefromError
from wherefrom.model import Model
from wherefrom.server.catalog import opened_by_name
from wherefrom.server.guard import Rules
from wherefrom.server.launch import run
from wherefrom.server.limits import Limits

TOKEN = "a-token-of-more-than-16"
ASKED = {"inputs": "the cat", "maps": False}


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "127.0.0.1:99", "[::1]:8000", "LOCALHOST.", "127.9.9.9"]
)
def test_the_servers_own_names_are_accepted(client: Any, host: str) -> None:
    assert client.get("/api/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.1.7"]
)
def test_a_name_turned_to_this_machine_is_refused(client: Any, host: str) -> None:
    """DNS rebinding: the page of evil.example asks evil.example, which by now is 127.0.0.1."""
    for path in ("/", "/api/health", "/page/page.js"):
        response = client.get(path, headers={"host": host})
        assert response.status_code == 403
        assert "is not called" in response.json()["detail"]


@pytest.mark.parametrize("host", ["", "a b", "localhost/x", "localhost@evil", "<script>"])
def test_a_malformed_host_is_refused(client: Any, host: str) -> None:
    assert client.get("/api/health", headers={"host": host}).status_code in (400, 403)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:3000"},  # another server of this machine
        {"origin": "http://127.0.0.1"},
        {"origin": "null"},
        {"origin": "127.0.0.1:8000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_pages_may_not_ask(client: Any, headers: dict[str, str]) -> None:
    assert client.post("/api/explain", json=ASKED, headers=headers).status_code == 403
    assert client.get("/api/models", headers=headers).status_code == 403


def test_the_page_itself_may(client: Any) -> None:
    headers = {"origin": HERE, "sec-fetch-site": "same-origin"}
    assert client.post("/api/explain", json=ASKED, headers=headers).status_code == 200
    linked = client.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
    assert linked.status_code == 200  # a link to the page is no request in its name


def test_only_json_is_taken(client: Any) -> None:
    """What a form of another site could send without asking first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        response = client.post("/api/explain", content=json.dumps(ASKED), headers={"content-type": kind})
        assert response.status_code == 415


@pytest.mark.parametrize(
    "name",
    [
        "../../../etc/passwd",
        "/etc",
        "bert-base-uncased",
        "wherefrom/sentiment",
        "tiny/../tiny",
        "",
        "TINY",
        "file:///etc",
    ],
)
def test_no_other_model_is_opened(client: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def opens(*_: Any, **__: Any) -> Any:
        raise AssertionError("a model was opened by a request")

    monkeypatch.setattr("wherefrom.model.opening._load", opens)
    response = client.post("/api/explain", json={**ASKED, "model": name})
    assert response.status_code == 404
    assert "there are: tiny" in response.json()["detail"]


@pytest.mark.parametrize(
    "path", ["/page/../app.py", "/page/%2e%2e/app.py", "/viewer/../../errors.py", "//etc/passwd", "/page/", "/page"]
)
def test_no_other_file_is_read(client: Any, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert "import" not in response.text


def test_the_icon_lies_where_a_browser_looks_for_it(client: Any) -> None:
    icon = client.get("/favicon.ico")
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert icon.content == client.get("/page/icon.svg").content


def test_every_answer_has_the_security_headers(client: Any) -> None:
    for path in ("/", "/api/health", "/nothing", "/page/page.css"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    refused = client.get("/", headers={"host": "evil.example"}).headers
    assert "content-security-policy" in refused
    assert "access-control-allow-origin" not in refused


def test_the_page_holds_no_script_of_its_own(client: Any) -> None:
    """The policy would not run it."""
    page = client.get("/").text
    assert "<script>" not in page
    assert " style=" not in page
    assert " on" not in page.replace(" on ", " ").replace(" one", "").split("<body")[0]


# Sizes ------------------------------------------------------------------------------------------------------


def test_a_long_body_is_refused_by_its_promise(models: dict[str, Model]) -> None:
    with client_of(models, limits=Limits(body=1000)) as client:
        response = client.post("/api/explain", json={"inputs": "cat " * 300})
        assert response.status_code == 413
        assert "longer than 1,000 bytes" in response.json()["detail"]
        assert client.post("/api/explain", json=ASKED).status_code == 200


def test_a_long_body_is_refused_as_it_arrives(models: dict[str, Model]) -> None:
    """Sent in chunks, without a length, and far more of it than will be read."""
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 1
            yield b"x" * 1000

    with listening(models, Limits(body=5000)) as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(
                "POST", "/api/explain", chunks(), {"content-type": "application/json"}, encode_chunked=True
            )
        try:
            assert connection.getresponse().status == 413
        except (ConnectionResetError, BrokenPipeError, http.client.BadStatusLine):
            assert sent < 10_000  # the server had closed already
        connection.close()


def test_a_promise_is_enough_to_be_refused(models: dict[str, Model]) -> None:
    """Before a byte of the body has come."""
    with listening(models, Limits(body=1000)) as address:
        where = urlsplit(address)
        with socket.create_connection((where.hostname, where.port), timeout=60) as one:
            head = f"POST /api/explain HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
            one.sendall(f"{head}Content-Length: 100000\r\n\r\n".encode())
            assert b" 413 " in one.recv(1000)


def test_a_body_that_never_ends_is_not_waited_for(models: dict[str, Model]) -> None:
    with listening(models, Limits(patience=0.3)) as address:
        where = urlsplit(address)
        with socket.create_connection((where.hostname, where.port), timeout=60) as slow:
            head = f"POST /api/explain HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
            slow.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            assert b" 408 " in slow.recv(1000)


# The token --------------------------------------------------------------------------------------------------


def test_others_need_the_token(models: dict[str, Model]) -> None:
    with client_of(models, Rules("0.0.0.0", ("machine",), TOKEN)) as client:
        for path in ("/", "/api/health", "/page/page.js", "/nothing"):
            response = client.get(path)
            assert response.status_code == 401
            assert "token" in response.json()["detail"]
        for wrong in ("", "x", TOKEN[:-1], TOKEN + "x", "ä"):
            sent = {"authorization": f"Bearer {wrong}".encode()}
            assert client.get("/api/health", headers=sent).status_code == 401
            assert client.get("/api/health", params={"token": wrong}).status_code == 401
        assert client.get("/api/health", params={"token": TOKEN}).status_code == 401  # only the page takes it there
        assert client.get("/api/health", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_address_with_the_token_opens_the_page(models: dict[str, Model]) -> None:
    with client_of(models, Rules("0.0.0.0", ("machine",), TOKEN)) as client:
        first = client.get("/", params={"token": TOKEN}, follow_redirects=False)
        assert (first.status_code, first.headers["location"]) == (303, "/")
        cookie = first.headers["set-cookie"]
        assert cookie.startswith("wherefrom-")
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert client.get("/").status_code == 200  # the cookie came along
        foreign = client.post("/api/explain", json=ASKED, headers={"origin": "https://evil.example"})
        assert foreign.status_code == 403


def test_an_open_address_knows_numbers_and_its_names(models: dict[str, Model]) -> None:
    with client_of(models, Rules("0.0.0.0", ("machine",), TOKEN)) as client:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        for host, status in (("192.168.1.7:8000", 200), ("machine", 200), ("[fe80::1]", 200), ("evil.example", 403)):
            assert client.get("/api/health", headers={**bearer, "host": host}).status_code == status


def test_no_open_address_without_a_token() -> None:
    with pytest.raises(ValueError, match="token"):
        Rules("0.0.0.0")
    with pytest.raises(WherefromError, match="token is too short"):
        run(host="0.0.0.0", token="short")


def test_a_port_in_use_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(WherefromError, match="another with --port"):
        run(port=taken.getsockname()[1])


def test_a_models_own_code_is_never_run(tmp_path: Path) -> None:
    """Nor is anybody asked whether it should be."""
    ran = tmp_path / "ran"
    (tmp_path / "configuration_evil.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "configuration_evil.Evil"}, "architectures": ["Evil"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WherefromError, match="cannot open the model"):
        opened_by_name([str(tmp_path)])
    assert not ran.exists()


def test_the_command_says_at_once_that_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    from wherefrom.server import launch

    monkeypatch.setattr(launch, "run", lambda *_, say, **__: say("ready"))
    said = CliRunner().invoke(app, ["serve", "--no-open"]).output.splitlines()
    assert said == ["loading the shipped models …", "ready"]
