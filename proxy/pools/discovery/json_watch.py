"""Answers and watches of Kubernetes and etcd: JSON over HTTP, bounded in bytes and time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

import httpx
from pydantic import BaseModel, ValidationError

CONNECT_S = 5.0
ANSWER_S = 15.0  # to a request that is not a watch
MOST_BYTES = 4_000_000  # of an answer, and of a line of a watch
SHOWN_CHARS = 200  # of an error's body
_HEADERS = {
    "User-Agent": "triton-openai",
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # a compressed body could be far larger than its bytes
}

AnyModel = TypeVar("AnyModel", bound=BaseModel)


class WrongStatus(ValueError):
    """The status of an answer is not 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


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


async def answer(
    client: httpx.AsyncClient, request: httpx.Request, form: type[AnyModel]
) -> AnyModel:
    """Raises ValueError: the answer is refused, of another form, too large or too slow."""
    content = bytearray()

    async def read() -> None:
        async with _parts(client, request) as parts:
            async for part in parts:
                content.extend(part)
                if len(content) > MOST_BYTES:
                    raise ValueError(f"{request.url} has more than {MOST_BYTES:,} bytes")

    try:
        await asyncio.wait_for(read(), ANSWER_S)
    except asyncio.TimeoutError:
        raise ValueError(f"{request.url} did not end within {ANSWER_S:g} s") from None
    return parsed(bytes(content), form)


async def lines(
    client: httpx.AsyncClient, request: httpx.Request, form: type[AnyModel], *, lasts_s: float
) -> AsyncGenerator[AnyModel, None]:
    """The lines of a watch, for lasts_s at most. A silent one ends after lasts_s, too.

    Raises ValueError: the watch is refused, or a line is of another form or too long.
    """
    request.extensions["timeout"] = httpx.Timeout(CONNECT_S, read=lasts_s).as_dict()
    ends_at, rest = asyncio.get_running_loop().time() + lasts_s, bytearray()
    async with _parts(client, request) as parts:
        async for part in parts:
            *heads, tail = part.split(b"\n")
            for head in heads:
                rest.extend(head)
                if rest.strip():
                    yield parsed(bytes(rest), form)
                rest.clear()
            rest.extend(tail)
            if len(rest) > MOST_BYTES:
                raise ValueError(f"a line of a watch has more than {MOST_BYTES:,} bytes")
            if asyncio.get_running_loop().time() > ends_at:
                return


@asynccontextmanager
async def _parts(
    client: httpx.AsyncClient, request: httpx.Request
) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    """The body of an answer with the status 200. Raises WrongStatus."""
    async with aclosing(await client.send(request, stream=True)) as response:
        # httpx' type does not say that this generator can be closed
        async with aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_raw())) as parts:
            if response.status_code == 200:
                yield parts
                return
            shown = b""
            async for part in parts:
                shown += part
                if len(shown) > 4 * SHOWN_CHARS:
                    break
        where = f"{request.method} {request.url.copy_with(query=None)}"
        text = shown.decode(errors="replace")[:SHOWN_CHARS].strip()
        status = response.status_code
        raise WrongStatus(status, f"{where}: status {status}: {text}")


def parsed(text: bytes, form: type[AnyModel]) -> AnyModel:
    """Raises ValueError, with the first thing that is wrong."""
    try:
        return form.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{text[:SHOWN_CHARS]!r}: {where}: {first['msg']}") from None
