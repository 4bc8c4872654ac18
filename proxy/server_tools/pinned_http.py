"""HTTP requests to hosts that others name. Used by `http_tools` and `image_fetcher`.

A host chooses how its answer is cut into interim answers, fields, chunks, TLS records and packets,
and each of them costs the event loop something. So bytes are taken in small steps, with the loop's
other work between two of them, and few of them may be anything else than the body.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import httptools
import httpx

from proxy.domain.server_tools import CallStatus
from proxy.server_tools.addresses import Resolve, is_public, resolved

Result = TypeVar("Result")
STEP_BYTES = 16_384  # under 2 ms, however they are cut
FREE_BYTES = 65_536  # besides the body: the handshake, heads, the ends of chunks, trailers
PART_OF_BODY = 4  # as many more for this many bytes of the body
MOST_FIELDS, MOST_ADDRESSES = 256, 16
FREE_READS, LEAST_READ_BYTES, PAUSE_S = 16, 4_096, 0.02  # a pause joins packets of a few bytes
OUR_HEADERS = {
    "User-Agent": "triton-openai",
    "Accept-Encoding": "identity",  # a compressed body could be far larger than its bytes
}


class FetchFailed(Exception):
    """`why` ends a sentence. received: bytes of the body."""

    def __init__(self, status: CallStatus, why: str, received: int = 0) -> None:
        super().__init__(why)
        self.status = status
        self.received = received


class PinnedHttp:
    """Each request opens its own connection to an address that was checked: names are not resolved
    a second time. Proxies from the environment and redirects are not followed.
    """

    def __init__(self, resolve: Resolve = resolved) -> None:
        self._resolve = resolve
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def response(
        self, request: httpx.Request, *, allows_private: bool = False
    ) -> AsyncIterator[httpx.Response]:
        """The response from the first address that accepts a connection.

        Raises:
            FetchFailed: one of the host's addresses is private, so none is used.
            OSError, UnicodeError: the host cannot be reached, or its answer is not HTTP.
        """
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = (await self._resolve(url.host, port))[:MOST_ADDRESSES]
        if not allows_private and not all(map(is_public, addresses)):
            raise FetchFailed(CallStatus.REFUSED_ADDRESS, "its address is not a public one")
        if self._tls is None and url.scheme == "https":
            self._tls = await asyncio.to_thread(_tls_context)  # slower than most calls
        reader, writer = await _connected(addresses, port)
        try:
            connection = _Connection(reader, writer)
            if self._tls is not None and url.scheme == "https":
                await connection.secure(self._tls, url.host)
            yield await connection.answer(request)
        finally:
            writer.transport.abort()


class _Connection(httpx.AsyncByteStream):
    """One request's connection, and the stream of its answer's body. Reads raise OSError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._parser = httptools.HttpResponseParser(self)
        self._fields: list[tuple[bytes, bytes]] = []
        self._head: httpx.Response | None = None
        self._pieces: list[bytes] = []
        self._is_complete = False
        self._reads = self._received_bytes = self._body_bytes = 0

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """The event loop's own TLS would decrypt 11,000 records in one go."""
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        await self._decrypted(self._tls.do_handshake)

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """Its body is read by the caller."""
        fields = b"".join(b"%b: %b\r\n" % field for field in request.headers.raw)
        if not fields.count(b"\r") == fields.count(b"\n") == len(request.headers.raw):
            raise OSError("a header has a line end")
        line = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)
        data = b"%b%bConnection: close\r\n\r\n%b" % (line, fields, request.content)
        if self._tls is None:
            self._writer.write(data)
        else:
            self._tls.write(data)
        while self._head is None:
            await self._parse_more()
        return self._head

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._pieces or not self._is_complete:
            if not self._pieces:
                await self._parse_more()
            pieces, self._pieces = self._pieces, []
            yield b"".join(pieces)

    async def _parse_more(self) -> None:
        tls = self._tls
        data = await (
            self._received() if tls is None else self._decrypted(lambda: tls.read(STEP_BYTES))
        )
        if not data:
            names = {"content-length", "transfer-encoding"}
            if self._head is None or not names.isdisjoint(self._head.headers):
                raise ConnectionError("the answer was cut off")
            self._is_complete = True
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self._is_complete:
                raise ConnectionError("the answer is not HTTP") from error

    async def _decrypted(self, step: Callable[[], Result]) -> Result | None:
        """What the step returns once enough has been received; None if the host has closed."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self._writer.write(self._outgoing.read())
                if not (data := await self._received()):
                    return None
                self._incoming.write(data)

    async def _received(self) -> bytes:
        """The next bytes of the host; none if it has closed."""
        most = FREE_BYTES + self._body_bytes + self._body_bytes // PART_OF_BODY
        if self._received_bytes > most:
            raise ConnectionError("the answer has too many bytes besides its body")
        data = await self._reader.read(STEP_BYTES)
        self._reads += 1
        self._received_bytes += len(data)
        is_small = self._reads > FREE_READS and len(data) < LEAST_READ_BYTES
        await asyncio.sleep(PAUSE_S if is_small else 0)
        return data

    # Called by the parser

    def on_message_begin(self) -> None:
        self._fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self._fields) == MOST_FIELDS:
            raise ConnectionError("the answer has too many fields")
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._head is None:
            self._head = httpx.Response(status, headers=self._fields, stream=self)

    def on_body(self, data: bytes) -> None:
        if not self._is_complete:
            self._pieces.append(data)
            self._body_bytes += len(data)

    def on_message_complete(self) -> None:
        self._is_complete = self._head is not None


async def body_of(response: httpx.Response, most: int) -> bytes:
    """Raises FetchFailed: the body is compressed, or larger than `most` bytes."""
    codings = ("content-encoding", "identity"), ("transfer-encoding", "chunked")
    if any(response.headers.get(name, plain).lower() != plain for name, plain in codings):
        raise FetchFailed(CallStatus.FAILED, "its answer is compressed")
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > most:
            why = f"its answer is larger than {most} bytes"
            raise FetchFailed(CallStatus.TOO_LARGE, why, len(data))
    return bytes(data)


async def _connected(
    addresses: list[str], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first address that accepts. limit: what is not read stays in the kernel, joined."""
    for address in addresses[:-1]:
        try:
            return await asyncio.open_connection(address, port, limit=1)
        except OSError:
            continue
    return await asyncio.open_connection(addresses[-1], port, limit=1)


def _tls_context() -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
