"""http: what a client gets for what it sends, and what the application sees of it."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import threading

import pytest
import uvloop

from tests.fixtures.own_server import served
from tests.fixtures.stack import HANG_S
from tests.unit.server.talks import CHUNKED, GET, HEAD

PIECES = [b"data: 1\n\n", b"", b"data: 2\n\n"]
CLOSE = GET.replace(b"Host: a", b"Host: a\r\nConnection: close")
BODY = b"POST %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n%b\r\nbody"
SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("SEEN", default="nothing")


async def app(scope, receive, send) -> None:
    path, headers = scope["path"], []
    match path:
        case "/fails":
            raise RuntimeError("secret")
        case "/says-nothing":
            return
        case "/short" | "/long":
            headers = [(b"Content-Length", b"19" if path == "/short" else b"17")]
        case "/whole":
            headers = [(b"Content-Length", b"18")]
        case "/bad-field":
            headers = [(b"X", b"a\r\nSet-Cookie: b")]
        case "/echo":
            await receive()
    status = 204 if path == "/none" else 200
    headers.append((b"X-Seen", SEEN.get().encode()))
    SEEN.set(path)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for piece in PIECES:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


async def answer(request: bytes, *more: bytes, application=app) -> bytes:
    """All that comes until the server closes the connection, or sends nothing more."""
    async with served(application) as address:
        reader, writer = await asyncio.open_connection(*address)
        came = b""
        try:
            for piece in (request, *more):
                writer.write(piece)
                await asyncio.sleep(0.05)
            while piece := await asyncio.wait_for(reader.read(65_536), 1):
                came += piece
            return came + b"<closed>"
        except asyncio.TimeoutError:
            return came
        finally:
            writer.close()


def of(path: bytes) -> bytes:
    return CLOSE.replace(b"/", path, 1)


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
def test_a_stream_to_http10_has_no_chunks_and_ends_with_the_connection(more):
    raw = uvloop.run(answer(b"GET /stream HTTP/1.0\r\n" + more + b"\r\n"))
    head, _, body = raw.partition(b"\r\n\r\n")
    assert body == b"".join(PIECES) + b"<closed>"
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_an_answer_with_a_length_keeps_it(version):
    raw = uvloop.run(answer(of(b"/whole").replace(b"1.1", version)))
    head, _, body = raw.partition(b"\r\n\r\n")
    assert body == b"".join(PIECES) + b"<closed>"
    assert b"content-length: 18" in head


def test_to_others_it_is_chunked_and_the_connection_stays():
    head, _, body = uvloop.run(answer(GET)).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert b"\r\ndate: " in head
    assert b"connection" not in head
    assert body == b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"


@pytest.mark.parametrize("request_bytes", [CLOSE.replace(b"GET", b"HEAD"), of(b"/none")])
def test_some_answers_have_no_body(request_bytes):
    head, _, body = uvloop.run(answer(request_bytes)).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body == b"<closed>"


@pytest.mark.parametrize("path", [b"/fails", b"/says-nothing"])
def test_an_application_without_an_answer_is_an_internal_error(path):
    head, _, body = uvloop.run(answer(of(path))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 ")
    assert b'"internal_error"' in body
    assert b"secret" not in body


@pytest.mark.parametrize("path", [b"/short", b"/long", b"/bad-field"])
def test_an_answer_that_contradicts_its_head_ends_with_the_connection(path):
    raw = uvloop.run(answer(GET.replace(b"/", path, 1)))
    assert raw.endswith(b"<closed>")
    assert b"set-cookie" not in raw.lower()


def test_a_client_that_waits_for_100_gets_it_once_and_only_if_the_body_is_wanted():
    expects = b"Expect: 100-continue\r\n"
    assert uvloop.run(answer(BODY % (b"/echo", expects))).startswith(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
    )
    assert uvloop.run(answer(BODY % (b"/whole", expects))).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"/a%20b?c=d", "/a b"), (b"http://a/b", "/b"), (b"http://a", "/"), (b"//a/b", "//a/b")],
)
def test_the_path_of_each_form_of_target(target, path):
    paths = []

    async def keeps(scope, receive, send) -> None:
        paths.append((scope["path"], scope["client"], scope["peer"]))
        await app({**scope, "path": "/whole"}, receive, send)

    fields = b" HTTP/1.1\r\nX-Forwarded-For: 192.0.2.7"
    request = of(target).replace(b" HTTP/1.1", fields)
    assert uvloop.run(answer(request, application=keeps)).startswith(b"HTTP/1.1 200 ")
    [(found, client, peer)] = paths
    assert found == path
    assert client == ("192.0.2.7", 0)
    assert peer[0] == "127.0.0.1"


@pytest.mark.parametrize("target", [b"a:1", b"/\xff"])
def test_other_targets_are_refused(target):
    assert uvloop.run(answer(of(target))).startswith(b"HTTP/1.1 400 ")
    assert uvloop.run(answer(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(
        b"HTTP/1.1 400 "
    )


def test_pipelined_requests_see_nothing_of_each_other():
    raw = uvloop.run(answer(of(b"/whole").replace(b"Connection: close\r\n", b"") * 2 + CLOSE))
    assert raw.count(b"x-seen: nothing") == raw.count(b"HTTP/1.1 200") == 3


def test_a_pipelined_request_that_is_incomplete_does_not_answer_into_a_running_answer():
    async def slow(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()
        await asyncio.wait({asyncio.ensure_future(receive())}, timeout=0.5)  # reads on meanwhile
        await send({"type": "http.response.body", "body": b"all of it"})

    async def talk() -> bytes:
        async with served(slow, sender_timeout_s=0.1) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(GET + HEAD + b"Content-Length: 4\r\n\r\nbo")
            raw = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), HANG_S)
            writer.close()
            return raw

    raw = uvloop.run(talk())
    assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
    assert raw.count(b"HTTP/1.1") == 1


def test_a_chunk_size_without_end_after_the_answer_is_not_answered_again():
    async def talk() -> bytes:
        async with served(app, sender_timeout_s=0.3) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(CHUNKED)
            raw = await reader.readuntil(b"0\r\n\r\n")
            writer.write(b"4")
            raw += await asyncio.wait_for(reader.read(), HANG_S)
            writer.close()
            return raw

    assert uvloop.run(talk()).count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("headers", [[], [(b"Content-Length", b"3")]])
def test_the_first_part_of_an_answer_does_not_wait_for_other_work_of_the_event_loop(headers):
    arrived, seen = threading.Event(), []

    async def busy(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        seen.append(arrived.wait(HANG_S))
        await send({"type": "http.response.body"})

    def read(address: tuple[str, int]) -> None:
        with socket.create_connection(address, HANG_S) as client:
            client.sendall(CLOSE)
            came = b""
            while b"one" not in came and (part := client.recv(65_536)):
                came += part
            arrived.set()

    async def run() -> None:
        async with served(busy) as address:
            await asyncio.to_thread(read, address)

    uvloop.run(run())
    assert seen == [True]
