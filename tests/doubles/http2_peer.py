"""A gRPC server whose every frame a test writes. Shares no framing code with the proxy."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from hpack import Decoder, Encoder
from tritonclient.grpc import service_pb2
from typing_extensions import Self

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
NO_ERROR, REFUSED_STREAM, CANCEL = 0, 7, 8
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 3, 4, 5
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
OPENING = {":status": "200", "content-type": "application/grpc"}


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """settings(INITIAL_WINDOW_SIZE=1)"""
    pairs = [struct.pack(">HI", globals()[name], value) for name, value in values.items()]
    return frame(SETTINGS, 0, 0, b"".join(pairs))


def reset(stream: int, code: int) -> bytes:
    return frame(RESET, 0, stream, struct.pack(">I", code))


def go_away(last_stream: int, code: int = NO_ERROR, text: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">II", last_stream, code) + text)


def window(stream: int, increment: int) -> bytes:
    return frame(WINDOW, 0, stream, struct.pack(">I", increment))


def response(name: str, *, size: int = 0) -> bytes:
    """A ModelStreamInferResponse of that id, of `size` bytes more."""
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.id = name
    if size:
        message.infer_response.raw_output_contents.append(bytes(size))
    return message.SerializeToString()


def framed(*messages: bytes, flag: int = 0) -> bytes:
    return b"".join(struct.pack(">BI", flag, len(message)) + message for message in messages)


def data(stream: int, *messages: bytes, most: int = 16_384) -> bytes:
    """DATA frames of at most so many bytes each."""
    whole = framed(*messages)
    parts = [whole[at : at + most] for at in range(0, len(whole), most)]
    return b"".join(frame(DATA, 0, stream, part) for part in parts)


def frames_of(whole: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(whole):
        start, at = at, at + 9 + int.from_bytes(whole[at : at + 3], "big")
        found.append(whole[start:at])
    return found


@dataclass
class Request:
    stream: int
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)

    @property
    def id(self) -> str:
        """Of the ModelInferRequest in it."""
        return service_pb2.ModelInferRequest.FromString(bytes(self.body[5:])).id


class Heads:
    """HEADERS frames of one connection, whose compression has one state."""

    def __init__(self) -> None:
        self._encoder = Encoder()

    def head(self, stream: int, *, ends: bool = False, **other: str) -> bytes:
        return self.block(stream, {**OPENING, **other}, ends=ends)

    def trailers(self, stream: int, status: int = 0, message: str | None = None) -> bytes:
        fields = {"grpc-status": str(status)}
        return self.block(
            stream, fields if message is None else {**fields, "grpc-message": message}, ends=True
        )

    def block(self, stream: int, fields: dict[str, str], *, ends: bool) -> bytes:
        encoded = self._encoder.encode(fields.items())
        return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream, encoded)

    def encode(self, fields: dict[str, str]) -> bytes:
        encoded: bytes = self._encoder.encode(fields.items())
        return encoded


class PeerConnection(Heads):
    """What a client sent, kept; and the ways to answer it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader, self._writer = reader, writer
        self._decoder = Decoder()
        self._news = asyncio.Event()
        self._waits: list[bytes] | None = None  # frames held back while a cut one is sent
        self._reading: asyncio.Task[None] | None = None
        self._open: dict[int, Request] = {}
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self.grants = True  # window for what was received, at once
        self.answers_pings = True
        self.settings = {INITIAL_WINDOW_SIZE: 65_535}
        self.resets: dict[int, int] = {}
        self.credits: Counter[int] = Counter()
        self.sent: Counter[int] = Counter()  # bytes of DATA, within windows
        self.received: Counter[int] = Counter()  # bytes of DATA
        self.open_streams = 0  # which the script has not answered
        self.pings = 0
        self.has_gone_away = False
        self.is_acknowledged = False
        self.is_over = False

    async def shake_hands(self, **values: int) -> None:
        assert await self._reader.readexactly(len(PREFACE)) == PREFACE
        self.send(settings(**values))
        self._reading = asyncio.create_task(self._read())
        await self.until(lambda: self.is_acknowledged)

    def send(self, *frames: bytes) -> None:
        if self._waits is None:
            self._writer.write(b"".join(frames))
        else:
            self._waits += frames

    def stop_reading(self) -> None:
        self._reading.cancel()
        self._writer.transport.pause_reading()

    async def send_slowly(self, *pieces: bytes) -> None:
        """Each in a segment of its own, as far as the kernel lets see; nothing between them."""
        self._waits = []
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0.0005)
        waiting, self._waits = self._waits, None
        self.send(*waiting)

    async def request(self) -> Request:
        return await self._requests.get()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            assert not self.is_over, "the client has closed the connection"
            self._news.clear()
            await self._news.wait()
            await asyncio.sleep(0)

    async def closed(self) -> None:
        """Returns when the client has closed the connection."""
        await self._reading

    def end(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def send_within_windows(self, stream: int, whole: bytes) -> None:
        """DATA of one stream; a frame when the client's windows have room for it."""
        for sent in frames_of(whole):
            size = len(sent) - 9
            await self.until(lambda size=size: self._room(stream) >= size)
            self.sent[stream] += size
            self.send(sent)

    def _room(self, stream: int) -> int:
        own = self.settings[INITIAL_WINDOW_SIZE] + self.credits[stream] - self.sent[stream]
        return min(own, 65_535 + self.credits[0] - sum(self.sent.values()))

    def answer(self, stream: int, *messages: bytes) -> bytes:
        """A whole answer that is well."""
        self.open_streams -= 1
        return self.head(stream) + data(stream, *messages) + self.trailers(stream)

    async def _read(self) -> None:
        try:
            while True:
                await self._read_frame()
                self._news.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.is_over = True
            self._news.set()

    async def _read_frame(self) -> None:
        header = await self._reader.readexactly(9)
        size, (kind, flags, stream) = (
            int.from_bytes(header[:3], "big"),
            struct.unpack(">BBI", header[3:]),
        )
        payload = await self._reader.readexactly(size)
        if kind == HEADERS:
            assert flags & END_HEADERS
            assert not flags & (PADDED | HAS_PRIORITY)
            self._open[stream] = Request(stream, dict(self._decoder.decode(payload)))
            self.open_streams += 1
        elif kind == DATA:
            self._take_data(flags, stream, payload)
        elif kind == RESET:
            self.resets[stream] = int.from_bytes(payload, "big")
        elif kind == WINDOW:
            self.credits[stream] += int.from_bytes(payload, "big")
        elif kind == GOAWAY:
            self.has_gone_away = True
        elif kind == SETTINGS and flags & ACK:
            self.is_acknowledged = True
        elif kind == SETTINGS:
            self.settings.update(struct.iter_unpack(">HI", payload))
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.pings += 1
            if self.answers_pings:
                self.send(frame(PING, ACK, 0, payload))

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        self.received[stream] += len(payload)
        request = self._open[stream]
        request.body += payload
        if flags & END_STREAM:
            self._requests.put_nowait(self._open.pop(stream))
        if self.grants and payload:
            own = b"" if flags & END_STREAM else window(stream, len(payload))
            self.send(window(0, len(payload)), own)


Script = Callable[[PeerConnection], Awaitable[None]]


class Peer:
    """Listens while it is entered; the n-th connection gets the n-th script, or the last one.

    A connection is closed when its script is over. Leaving ends the scripts that still run, and
    raises what one raised.
    """

    def __init__(self, *scripts: Script, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.port = port  # 0 until it listens: any free one
        self._scripts = scripts
        self._tls = tls
        self._tasks: list[asyncio.Task[None]] = []
        self.connections: list[PeerConnection] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, AssertionError if kind else Exception):
                raise result

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts[min(len(self.connections), len(self._scripts) - 1)]
        connection = PeerConnection(reader, writer)
        self.connections.append(connection)
        self._tasks.append(asyncio.create_task(_run(script, connection)))


async def _run(script: Script, connection: PeerConnection) -> None:
    try:
        await script(connection)
    finally:
        connection.end()
