"""Stand-ins for the Hugging Face Hub and for S3, as far as their clients need them to fetch.

Both serve one folder: as the repository `org/name`, and as what is in bucket `bucket`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Handler(BaseHTTPRequestHandler):
    """`server.asked`: method and path of each request."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def log_message(self, *args: object) -> None: ...

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        if path.startswith("/api/models/org/name"):
            self._answer(200, self._repository(path), "application/json")
        elif path.startswith("/org/name/resolve/"):
            revision, name = path.split("/", 5)[4:]
            self._file(name, revision)
        elif path.rstrip("/") == "/bucket":
            self._answer(200, self._listing(), "application/xml")
        elif path.startswith("/bucket/"):
            self._file(path.removeprefix("/bucket/"))
        else:
            self._answer(404, b"{}", "application/json")

    def _file(self, name: str, revision: str = "") -> None:
        file = self.server.folder / name
        if not file.is_file():
            self._answer(404, b"", "text/plain", {"X-Error-Code": "EntryNotFound"})
            return
        content = file.read_bytes()
        tag = hashlib.sha256(content).hexdigest()
        self._answer(
            200, content, "application/octet-stream",
            {"ETag": f'"{tag}"', "X-Repo-Commit": _commit(revision),
             "Last-Modified": "Sat, 21 Nov 2026 08:00:00 GMT"},
        )  # fmt: skip

    def _repository(self, path: str) -> bytes:
        names = self._names()
        if "/tree/" in path:
            sizes = {name: (self.server.folder / name).stat().st_size for name in names}
            rows = [{"type": "file", "path": n, "size": s, "oid": "0"} for n, s in sizes.items()]
            return json.dumps(rows).encode()
        siblings = [{"rfilename": name} for name in names]
        sha = _commit(path.rpartition("/")[2])
        return json.dumps({"id": "org/name", "sha": sha, "siblings": siblings}).encode()

    def _listing(self) -> bytes:
        prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><ETag>x</ETag>"
            f"<LastModified>2026-11-21T08:00:00.000Z</LastModified>"
            f"<Size>{(self.server.folder / name).stat().st_size}</Size></Contents>"
            for name in self._names()
            if name.startswith(prefix)
        )
        return (
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
        )

    def _names(self) -> list[str]:
        folder: Path = self.server.folder
        return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())

    def _answer(
        self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _commit(revision: str) -> str:
    """The revision itself if it is a commit."""
    return revision if len(revision) == len(COMMIT) else COMMIT


@contextmanager
def serve(folder: Path) -> Iterator[Any]:
    """The running server: `url`, and `asked`."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.folder, server.asked = folder, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def environment(url: str) -> dict[str, str]:
    """For the clients' own settings."""
    return {
        "HF_ENDPOINT": url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "AWS_ENDPOINT": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_REGION": "x",
    }
