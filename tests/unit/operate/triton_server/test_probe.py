"""What a probe makes of servers that answer, answer badly, or do not answer."""

from __future__ import annotations

import asyncio

import pytest

from proxy.operate.triton_server import probe

CHUNKED = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n3\r\nt y\r\n0\r\n\r\n"


def probed(answer: bytes | None, timeout_s: float = 5.0) -> tuple[int, str]:
    """Of a server that sends `answer`; or reads and says nothing."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await probe.get("127.0.0.1", port, "/health/ready", timeout_s)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", (200, "ok")),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", (200, "until the end")),
        (CHUNKED, (503, "not y")),
    ],
)
def test_an_answer_is_read_whole(answer, expected):
    assert probed(answer) == expected


@pytest.mark.parametrize("answer", [b"", b"220 smtp.example ESMTP\r\n", None])
def test_what_is_not_an_answer_is_an_error_that_names_the_port(answer):
    with pytest.raises(OSError, match=r"127.0.0.1:\d+ did not respond"):
        probed(answer, timeout_s=0.5)


def test_a_port_where_nothing_listens_is_an_error():
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1 did not respond"):
        asyncio.run(probe.get("127.0.0.1", 1, "/"))


def test_a_probe_is_not_logged_and_uses_no_proxy_of_the_environment(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert probed(b"HTTP/1.1 204 No Content\r\n\r\n") == (204, "")
    assert not caplog.records
