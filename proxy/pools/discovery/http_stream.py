"""Answers of Kubernetes and etcd over HTTP, bounded in bytes and time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import httpx
import orjson

CONNECT_S = 5.0
ANSWER_S = 15.0  # to a request that is no watch
SHOWN_CHARS = 200  # of an error's body
_HEADERS = {
    "User-Agent": "triton-openai",
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # a compressed body could be far larger than its bytes
}


async def http_client(url: str, ca_file: Path | None) -> httpx.AsyncClient:
    """A client of one server. ca_file: None for the system's authorities.

    Raises OSError: the file cannot be read.
    """
    tls: ssl.SSLContext | bool = False
    if url.startswith("https://"):
        tls = await asyncio.to_thread(_tls, ca_file)
    return httpx.AsyncClient(
        base_url=url,
        verify=tls,
        headers=_HEADERS,
        timeout=httpx.Timeout(CONNECT_S, read=ANSWER_S),
        trust_env=False,
        follow_redirects=False,
    )


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    if ca_file is None:
        return httpx.create_ssl_context(trust_env=False)
    return ssl.create_default_context(cadata=ca_file.read_text("ascii", "ignore"))


async def checked(response: httpx.Response) -> None:
    """Raises ValueError: the status is not 200, or the body is compressed."""
    if response.status_code != 200:
        text = (await _whole(response, 4 * SHOWN_CHARS, cuts=True)).decode(errors="replace")
        where = f"{response.request.method} {response.request.url.copy_with(query=None)}"
        raise ValueError(f"{where}: status {response.status_code}: {text[:SHOWN_CHARS].strip()}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ValueError(f"{response.request.url} has a compressed body, which was not accepted")


async def json_object(response: httpx.Response, most_bytes: int) -> dict[str, Any]:
    """The whole body. Raises ValueError: it is no JSON object, too large or too slow."""
    return parsed(await _whole(response, most_bytes, cuts=False))


async def _whole(response: httpx.Response, most_bytes: int, *, cuts: bool) -> bytes:
    ends_at = asyncio.get_running_loop().time() + ANSWER_S
    content = bytearray()
    async with aclosing(_parts(response)) as parts:
        async for part in parts:
            content += part
            if len(content) > most_bytes and cuts:
                break
            if len(content) > most_bytes:
                raise ValueError(f"{response.request.url} has more than {most_bytes:,} bytes")
            if asyncio.get_running_loop().time() > ends_at:
                raise ValueError(f"{response.request.url} did not end within {ANSWER_S:g} s")
    return bytes(content)


async def json_lines(
    response: httpx.Response, *, most_bytes: int, lasts_s: float
) -> AsyncGenerator[dict[str, Any], None]:
    """The JSON objects of a watch, one a line, for lasts_s at most.

    Raises ValueError: a line is no JSON object, or has more than most_bytes.
    """
    ends_at = asyncio.get_running_loop().time() + lasts_s
    lines = LineBuffer(most_bytes)
    async with aclosing(_parts(response)) as parts:
        async for part in parts:
            for line in lines.push(part):
                yield parsed(line)
            if asyncio.get_running_loop().time() > ends_at:
                return


def _parts(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """httpx' type does not say that this generator can be closed."""
    return cast("AsyncGenerator[bytes, None]", response.aiter_raw())


class LineBuffer:
    """Cuts bytes into lines. The result is the same however the bytes are cut before."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def push(self, part: bytes) -> list[bytes]:
        """Complete lines that are not empty. Raises ValueError: one has more than most_bytes."""
        head, *rest = part.split(b"\n")
        self._keep(head)
        lines = []
        for piece in rest:
            lines.append(b"".join(self._parts))
            self._parts, self._size = [], 0
            self._keep(piece)
        return [line for line in lines if line.strip()]

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._most_bytes:
            raise ValueError(f"a line of a watch has more than {self._most_bytes:,} bytes")
        self._parts.append(piece)


def parsed(text: bytes) -> dict[str, Any]:
    """Raises ValueError: it is no JSON object."""
    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise ValueError(f"{text[:SHOWN_CHARS]!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{text[:SHOWN_CHARS]!r} is not a JSON object")
    return found


def objects(found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Those of a field, which may be absent or null. Raises ValueError."""
    values = found.get(name)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
        raise ValueError(f"{name!r} of an answer is no list of JSON objects")
    return values
