"""PinnedHttp: whatever a host sends, it never holds the event loop, and takes little of its CPU."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Coroutine
from typing import Any

import httpx
import pytest
import uvloop

from proxy.server_tools.pinned_http import FetchFailed, PinnedHttp, body_of
from tests.fixtures.certificates import certificate, needs_openssl
from tests.fixtures.hostile_host import hostile_host
from tests.fixtures.stack import HANG_S

MOST_BYTES = 2_000_000
DEADLINE_S = 1.0
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = {  # how the answer begins, and what then comes without end
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "interim answers with fields": (b"", b"HTTP/1.1 103 Early Hints\r\na: b\r\nc: d\r\n\r\n"),
    "answers of another protocol": (b"", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
    "empty lines": (b"", b"\r\n"),
    "a status without end": (b"HTTP/1.1 200 ", b"O"),
    "fields": (OK, b"a:b\r\n"),
    "fields without a value": (OK, b"a:\r\n"),
    "a field's name": (OK, b"a"),
    "a field's value": (OK + b"a:", b"a"),
    "chunks of one byte": (CHUNKED, b"1\r\na\r\n"),
    "chunks of six bytes": (CHUNKED, b"6\r\naaaaaa\r\n"),
    "chunks with extensions": (CHUNKED, b"1;a=b;c=d\r\na\r\n"),
    "a chunk's extension": (CHUNKED + b"1;", b"a"),
    "a chunk's size": (CHUNKED, b"0"),
    "trailers": (CHUNKED + b"0\r\n", b"a:b\r\n"),
    "an endless body": (OK + b"\r\n", b"a"),
    "a body larger than its length": (OK + b"Content-Length: 3\r\n\r\n", b"a"),
    "answers after the answer": (b"", OK + b"Content-Length: 1\r\n\r\na"),
    "a compressed body": (OK + b"Content-Encoding: gzip\r\n\r\n", b"\0"),
    "a compressed transfer": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", b"1\r\na\r\n"),
}


def fetched(port: int, scheme: str = "http") -> tuple[bytes | Exception, float, float]:
    """The body, or the error; CPU seconds of the loop's thread in its longest turn and together."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    async def fetch(http: PinnedHttp) -> bytes:
        request = httpx.Request("GET", f"{scheme}://localhost:{port}/")
        async with http.response(request, allows_private=True) as response:
            return await body_of(response, MOST_BYTES)

    async def ended(work: Coroutine[Any, Any, bytes]) -> bytes | Exception:
        try:
            return await asyncio.wait_for(work, DEADLINE_S)
        except (OSError, FetchFailed, asyncio.TimeoutError) as error:
            return error

    async def main() -> tuple[bytes | Exception, float, float]:
        http = PinnedHttp()
        await ended(fetch(http))  # the first one imports, and reads certificates
        began = time.thread_time()
        found = await ended(fetch(http))
        used = time.thread_time() - began
        watching = asyncio.ensure_future(watch())
        await asyncio.sleep(0)
        await ended(fetch(http))
        watching.cancel()
        return found, longest, used

    return uvloop.run(asyncio.wait_for(main(), HANG_S))


@pytest.mark.parametrize("name", ENDLESS)
def test_no_endless_answer_holds_the_event_loop(name):
    with hostile_host(*ENDLESS[name]) as port:
        found, longest_s, used_s = fetched(port)
    if name in ("a body larger than its length", "answers after the answer"):
        assert found in (b"aaa", b"a")
    else:
        assert isinstance(found, (OSError, FetchFailed))
        assert not isinstance(found, TimeoutError), "its bytes are bounded, not its time alone"
    assert longest_s < 0.02
    assert used_s < 0.2


@needs_openssl
@pytest.mark.parametrize("name", ["interim answers", "chunks of one byte", "an endless body"])
def test_records_of_a_few_bytes_hold_nothing_either(name, tmp_path, monkeypatch):
    path, _ = certificate(tmp_path, "host")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, path.with_suffix(".key"))
    with hostile_host(*ENDLESS[name], tls=context) as port:
        found, longest_s, used_s = fetched(port, "https")
    assert isinstance(found, (OSError, FetchFailed))
    assert longest_s < 0.02
    assert used_s < 0.2


@pytest.mark.parametrize("name", ["an endless body", "a field's value", "chunks of six bytes"])
def test_packets_of_a_few_bytes_are_read_together_until_the_deadline(name):
    with hostile_host(*ENDLESS[name], is_dripping=True) as port:
        found, longest_s, used_s = fetched(port)
    assert isinstance(found, (OSError, FetchFailed))
    assert longest_s < 0.02
    assert used_s < 0.2


BODY = b"abc" * 20_000
WHOLE = {
    "with a length": OK + b"Content-Length: 60000\r\n\r\n" + BODY,
    "until the end of the connection": OK + b"\r\n" + BODY,
    "in chunks": CHUNKED + b"c\r\nabcabcabcabc\r\n" * 5_000 + b"0\r\nsum: 1\r\n\r\n",
    "after interim answers": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x"
    b"\r\n\r\n" + OK + b"Content-Length: 60000\r\n\r\n" + BODY,
}


async def answered(answer: bytes, piece_bytes: int) -> bytes:
    """What is read of an answer that comes in pieces, and ends with the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for at in range(0, len(answer), piece_bytes):
            writer.write(answer[at : at + piece_bytes])
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        request = httpx.Request("GET", f"http://127.0.0.1:{port}/")
        async with PinnedHttp().response(request, allows_private=True) as response:
            assert response.status_code == 200
            return await body_of(response, len(BODY))


@pytest.mark.parametrize("piece_bytes", [97, 5_000, 1_000_000])
@pytest.mark.parametrize("form", WHOLE)
def test_an_honest_answer_is_whole_however_it_is_cut(form, piece_bytes):
    assert uvloop.run(answered(WHOLE[form], piece_bytes)) == BODY


@pytest.mark.parametrize("form", ["with a length", "in chunks"])
@pytest.mark.parametrize("missing", [1, 50_000])
def test_an_answer_that_was_cut_off_is_none(form, missing):
    with pytest.raises(ConnectionError):
        uvloop.run(answered(WHOLE[form][:-missing], 5_000))
