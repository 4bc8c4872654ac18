"""The part of a Kubernetes API server that serves EndpointSlices, over real HTTP.

Lists in pages, watches with bookmarks, and forgets old versions when it is told to.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.fixtures.stack import HANG_S

Slice = dict[str, Any]
BREAK = b""  # in place of an event: the connection breaks
END = b"END"  # in place of an event: the watch ends as one whose time is over


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Any

    def do_GET(self) -> None:
        api: KubernetesApiServer = self.server.api
        query = dict(parse_qsl(urlsplit(self.path).query))
        api.note(urlsplit(self.path).path, query, self.headers.get("authorization"))
        if api.refusal is not None:
            status, body = api.refusal
            self._answer(status, body)
        elif "watch" in query:
            self._watch(api, int(query["resourceVersion"]))
        else:
            self._answer(200, api.page(query))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, api: KubernetesApiServer, version: int) -> None:
        if version < api.oldest:
            self._answer(410, b"")
            return
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        for line in api.lines_after(version):
            if line == BREAK:
                return
            if line == END:
                self.wfile.write(b"0\r\n\r\n")
                return
            half = len(line) // 2  # no event arrives in one piece
            for part in (line[:half], line[half:]):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
                self.wfile.flush()

    def log_message(self, *args: object) -> None: ...


class KubernetesApiServer:
    """refusal: the status and body of every answer. oldest: watches from before it are answered
    with 410. requests: path, query and authorization of each request, in order. certificate: and
    its key; with them the server speaks TLS."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self._changed = Condition()
        self._slices: dict[str, Slice] = {}
        self._lines: list[tuple[int, bytes]] = []
        self._version = 1
        self._is_closed = False
        self.watching = 0
        self.oldest = 0
        self.refusal: tuple[int, bytes] | None = None
        self.requests: list[tuple[str, dict[str, str], str | None]] = []
        self._server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self._server.daemon_threads = True
        self._scheme = "http" if certificate is None else "https"
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*certificate)
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

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
        with self._changed:
            self._lines.append((self._version, line))
            self._changed.notify_all()

    def wait_watched(self, times: int) -> None:
        """Until so many watches have begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.watching >= times, HANG_S)

    def note(self, path: str, query: dict[str, str], authorization: str | None) -> None:
        self.requests.append((path, query, authorization))

    def page(self, query: dict[str, str]) -> bytes:
        names = sorted(self._slices)
        first = int(query.get("continue", 0))
        last = first + int(query["limit"])
        more = {"continue": str(last)} if last < len(names) else {}
        metadata = {"resourceVersion": str(self._version), **more}
        items = [self._slices[name] for name in names[first:last]]
        return json.dumps({"metadata": metadata, "items": items}).encode()

    def lines_after(self, version: int) -> Iterator[bytes]:
        """Ends when the server stops."""
        with self._changed:
            position = len(self._lines)
            missed = [line for at, line in self._lines if at > version and line[:1] == b"{"]
            self.watching += 1
            self._changed.notify_all()
        yield from missed
        while (line := self._line(position)) is not None:
            position += 1
            yield line

    def _line(self, position: int) -> bytes | None:
        """Waits for it. None: the server stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._lines) > position)
            return None if self._is_closed else self._lines[position][1]

    def _emit(self, kind: str, found: Slice) -> None:
        with self._changed:
            self._version += 1
            metadata = {**found["metadata"], "resourceVersion": str(self._version)}
            event = {"type": kind, "object": {**found, "metadata": metadata}}
            self._lines.append((self._version, json.dumps(event).encode() + b"\n"))
            self._changed.notify_all()

    @contextmanager
    def running(self) -> Iterator[KubernetesApiServer]:
        self._thread.start()
        try:
            yield self
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


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
