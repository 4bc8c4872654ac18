"""The part of a Kubernetes API server that serves EndpointSlices, over real HTTP.

Lists in pages, watches with bookmarks, and forgets old versions when it is told to.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Slice = dict[str, Any]
BREAK = b""  # in place of an event: the connection breaks
END = b"END"  # in place of an event: the watch ends as one whose time is over


class KubernetesApiServer:
    """refusal: the status and body of every answer. oldest: watches from before it are answered
    with 410. requests: path, query and authorization of each request, in order. watching: how many
    watches have begun. certificate: and its key; with them the server speaks TLS."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self._certificate = certificate
        self._slices: dict[str, Slice] = {}
        self._events: list[tuple[int, bytes]] = []
        self._watches: list[asyncio.Queue[bytes]] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._version = 1
        self.oldest = 0
        self.refusal: tuple[int, bytes] | None = None
        self.requests: list[tuple[str, dict[str, str], str | None]] = []
        self.url = ""

    @property
    def watching(self) -> int:
        return len(self._watches)

    def put(self, found: Slice) -> None:
        name = found["metadata"]["name"]
        kind = "MODIFIED" if name in self._slices else "ADDED"
        self._slices[name] = found
        self._emit(kind, found)

    def delete(self, name: str) -> None:
        self._emit("DELETED", self._slices.pop(name))

    def bookmark(self) -> None:
        self._emit("BOOKMARK", {"kind": "EndpointSlice", "metadata": {}})

    def expire(self, found: Slice) -> None:
        """Changes a slice, and forgets the change before any watch has seen it."""
        self._slices[found["metadata"]["name"]] = found
        self._version += 1
        self.oldest = self._version
        gone = {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired"}
        self.send(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")

    def send(self, line: bytes) -> None:
        """A line as it is, BREAK or END, to the watches of now."""
        for watch in self._watches:
            watch.put_nowait(line)

    def _emit(self, kind: str, found: Slice) -> None:
        self._version += 1
        metadata = {**found["metadata"], "resourceVersion": str(self._version)}
        line = json.dumps({"type": kind, "object": {**found, "metadata": metadata}}).encode()
        self._events.append((self._version, line + b"\n"))
        self.send(line + b"\n")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[KubernetesApiServer]:
        tls = None
        if self._certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*self._certificate)
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=tls)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._answer((await reader.readuntil(b"\r\n\r\n")).decode(), writer):
                await writer.drain()
        writer.close()

    async def _answer(self, head: str, writer: StreamWriter) -> bool:
        """Whether the connection stays."""
        first, *lines = head.splitlines()
        url = urlsplit(first.split()[1])
        query = dict(parse_qsl(url.query))
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
        self.requests.append((url.path, query, headers.get("authorization")))
        if self.refusal is not None:
            status, body = self.refusal
        elif "watch" not in query:
            status, body = 200, self._page(query)
        elif int(query["resourceVersion"]) < self.oldest:
            status, body = 410, b""
        else:
            await self._watch(int(query["resourceVersion"]), writer)
            return False
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        return True

    def _page(self, query: dict[str, str]) -> bytes:
        names = sorted(self._slices)
        first = int(query.get("continue", 0))
        last = first + int(query["limit"])
        more = {"continue": str(last)} if last < len(names) else {}
        metadata = {"resourceVersion": str(self._version), **more}
        items = [self._slices[name] for name in names[first:last]]
        return json.dumps({"metadata": metadata, "items": items}).encode()

    async def _watch(self, version: int, writer: StreamWriter) -> None:
        watch: asyncio.Queue[bytes] = asyncio.Queue()
        for at, line in self._events:
            if at > version:
                watch.put_nowait(line)
        self._watches.append(watch)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while (line := await watch.get()) not in (BREAK, END):
            half = len(line) // 2  # no event arrives in one piece
            for part in (line[:half], line[half:]):
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                await writer.drain()
                await asyncio.sleep(0.001)
        writer.write(b"0\r\n\r\n" if line == END else b"")


def endpoint(address: str, *, uid: str | None = None, **conditions: bool | None) -> dict[str, Any]:
    """As the API writes one; ready if nothing is said of it."""
    target = {} if uid is None else {"targetRef": {"kind": "Pod", "name": uid, "uid": uid}}
    return {"addresses": [address], "conditions": conditions or {"ready": True}, **target}


def endpoint_slice(
    name: str, *endpoints: dict[str, Any], family: str = "IPv4", port: int = 8001
) -> Slice:
    return {
        "metadata": {
            "name": name,
            "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": "triton"},
        },
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": [
            {"name": "grpc", "port": port, "protocol": "TCP"},
            {"name": "metrics", "port": port + 1, "protocol": "TCP"},
        ],
    }
