"""Requests that are wrong as HTTP: bytes in, bytes out, through our connections and the app."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
import uvloop

from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.own_server import served
from tests.fixtures.stack import HANG_S

HOST = b"Host: a\r\n"
BODY = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "hi"}]}).encode()
MOST_BYTES = 2_000_000


def get(path: bytes = b"/health/live", fields: bytes = HOST, version: bytes = b"1.1") -> bytes:
    return b"GET %b HTTP/%b\r\n%b\r\n" % (path, version, fields)


def post(body: bytes, fields: bytes = HOST, version: bytes = b"1.1") -> bytes:
    head = b"POST /v1/chat/completions HTTP/%b\r\n%bContent-Length: %d\r\n\r\n"
    return head % (version, fields, len(body)) + body


def in_chunks(body: bytes) -> bytes:
    head = b"POST /v1/chat/completions HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % HOST
    pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"


def upgrade(path: bytes, fields: bytes = HOST) -> bytes:
    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    return get(path, fields + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + key)


WRONG = {
    "no host": (get(fields=b""), 400, "invalid_host"),
    "no host in a post": (post(BODY, fields=b""), 400, "invalid_host"),
    "two hosts": (get(fields=HOST + HOST), 400, "invalid_host"),
    "two hosts, one of them written otherwise": (get(fields=HOST + b"hOST: b\r\n"), 400, None),
    "two hosts of HTTP/1.0": (get(fields=HOST * 2, version=b"1.0"), 400, "invalid_host"),
    "a host with a blank": (get(fields=b"Host: a b\r\n"), 400, "invalid_host"),
    "a host with a path": (get(fields=b"Host: a/b\r\n"), 400, "invalid_host"),
    "a host with a user": (get(fields=b"Host: u@a\r\n"), 400, "invalid_host"),
    "two hosts in one": (get(fields=b"Host: a, b\r\n"), 400, "invalid_host"),
    "a host with a wrong port": (get(fields=b"Host: a:b\r\n"), 400, "invalid_host"),
    "a host of other letters": (get(fields="Host: é\r\n".encode()), 400, "invalid_host"),
    "a foreign host": (get(fields=b"Host: evil.example\r\n"), 421, "unknown_host"),
    "a long path": (get(b"/" + b"x" * 9_000), 414, "uri_too_long"),
    "a long query": (get(b"/health/live?" + b"x" * 9_000), 414, "uri_too_long"),
    "an endless path": (get(b"/" + b"x" * 2_000_000), 414, "uri_too_long"),
    "a long field": (get(fields=HOST + b"X: %b\r\n" % (b"x" * 70_000)), 431, None),
    "a long name": (get(fields=HOST + b"%b: x\r\n" % (b"x" * 70_000)), 431, None),
    "many long fields": (get(fields=HOST + b"X: %b\r\n" % (b"x" * 700) * 100), 431, None),
    "many fields": (get(fields=HOST + b"X: x\r\n" * 200), 431, "header_fields_too_large"),
    "a long body": (post(b"x" * 3_000_000), 413, "request_too_large"),
    "a very long body": (post(b"x" * 20_000_000), 413, "request_too_large"),
    "a long body in chunks": (in_chunks(b"x" * 3_000_000), 413, "request_too_large"),
    "no such method": (b"FETCH / HTTP/1.1\r\n%b\r\n" % HOST, 400, "invalid_http"),
    "a method in small letters": (b"get / HTTP/1.1\r\n%b\r\n" % HOST, 400, "invalid_http"),
    "a path without a slash": (get(b"health/live"), 400, "invalid_http"),
    "a path with other letters": (get("/é".encode()), 400, "invalid_http"),
    "a tunnel": (b"CONNECT a:80 HTTP/1.1\r\n%b\r\n" % HOST, 400, "invalid_http"),
    "no version": (b"GET /\r\n\r\n", 400, None),
    "a deletion": (b"DELETE /v1/models HTTP/1.1\r\n%b\r\n" % HOST, 405, "method_not_allowed"),
    "a get of what is posted": (get(b"/v1/chat/completions"), 405, "method_not_allowed"),
    "no such path": (get(b"/nothing"), 404, "unknown_url"),
    "a WebSocket at no such path": (upgrade(b"/nothing"), 404, "unknown_url"),
    "a WebSocket where there is a route": (upgrade(b"/v1/models"), 404, "unknown_url"),
    "a WebSocket of OpenAI's": (upgrade(b"/v1/realtime?model=demo"), 404, "unknown_url"),
    "a WebSocket at a foreign host": (
        upgrade(b"/v1/chat/completions/ws", b"Host: evil.example\r\n"),
        421,
        "unknown_host",
    ),
    "a body that is no JSON": (post(b"{"), 400, "invalid_json"),
}
RIGHT = {
    "HTTP/1.0 without a host": get(fields=b"", version=b"1.0"),
    "an empty host": get(fields=b"Host:\r\n"),
    "an address with a port": get(fields=b"Host: 127.0.0.1:9000\r\n"),
    "an address of six": get(fields=b"Host: [::1]:9000\r\n"),
    "a name with an underscore": get(fields=b"Host: my_proxy:9000\r\n"),
    "a whole address as its target": get(b"http://a/health/live"),
    "a head below the limit": get(fields=HOST + b"X: %b\r\n" % (b"x" * 60_000)),
    "a path with a slash at its end": get(b"/v1/models/"),
    "a post": post(BODY),
    "a post of HTTP/1.0": post(BODY, version=b"1.0"),
}


def answer(address: tuple[str, int], request: bytes) -> bytes:
    """All that comes to a client that sends everything before it reads, and stops sending then."""
    with socket.create_connection(address, timeout=HANG_S) as sock:
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(65_536), b""))


@pytest.fixture
def ask(serve):
    """ask(request) -> the answer's head and body."""
    app = serve(ScriptedEngine(deltas("ab")), max_request_bytes=MOST_BYTES).app

    async def asked(request: bytes) -> bytes:
        async with served(app) as address:
            return await asyncio.to_thread(answer, address, request)

    def run(request: bytes) -> tuple[bytes, bytes]:
        raw = uvloop.run(asked(request))
        *_, last = raw.partition(b"HTTP/1.1 100 Continue\r\n\r\n") if b" 100 " in raw else (raw,)
        head, _, body = last.rpartition(b"\r\n\r\n")
        return head[head.rindex(b"HTTP/1.1 ") :], body

    return run


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_request_is_refused_with_a_reason_that_its_client_gets(ask, name):
    request, status, code = WRONG[name]
    head, body = ask(request)
    error = json.loads(body)["error"]
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert error["message"]
    assert error["type"] == "invalid_request_error"
    assert code in (None, error["code"])
    if status in (413, 414, 431):
        assert b"connection: close" in head.lower()


def test_a_websocket_at_an_unknown_url_is_told_where_the_one_is(ask):
    for path in (b"/v1/realtime", b"/v1/chat/completion/ws", b"/chat/completions/ws"):
        head, body = ask(upgrade(path))
        assert b"content-type: application/json" in head.lower()
        message = json.loads(body)["error"]["message"]
        assert message.startswith(f"Invalid URL (WEBSOCKET {path.decode()}). ")
        assert "/v1/chat/completions/ws" in message


@pytest.mark.parametrize("name", RIGHT)
def test_a_strange_request_that_is_right_is_answered(ask, name):
    head, body = ask(RIGHT[name])
    assert head.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)


def test_no_answer_names_the_callers_host(ask):
    for path in (b"/v1/models/", b"/v1/chat/completions/", b"/docs/", b"//other/"):
        head, _ = ask(get(path, fields=b"Host: somewhere\r\n"))
        assert b"location" not in head.lower()
        assert b"somewhere" not in head
