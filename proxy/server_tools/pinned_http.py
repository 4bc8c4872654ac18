"""HTTP requests to hosts that others name. Used by `http_tools` and `image_fetcher`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from ipaddress import ip_address

import httpx

from proxy.domain.server_tools import CallStatus
from proxy.server_tools.addresses import Resolve, is_public, resolved

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
        self._trusts_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    @asynccontextmanager
    async def response(
        self, request: httpx.Request, *, allows_private: bool = False
    ) -> AsyncIterator[httpx.Response]:
        """The response from the first address that accepts a connection.

        Raises:
            FetchFailed: one of the host's addresses is private, so none is used.
            httpx.HTTPError, OSError, UnicodeError: the host cannot be reached.
        """
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await self._resolve(url.host, port)
        if not allows_private and not all(map(is_public, addresses)):
            raise FetchFailed(CallStatus.REFUSED_ADDRESS, "its address is not a public one")
        async with (
            await self._client(url) as client,
            aclosing(await _sent(client, request, addresses)) as response,
        ):
            yield response

    async def _client(self, url: httpx.URL) -> httpx.AsyncClient:
        """A new client. The certificates are read once, since that takes longer than most calls."""
        if self._tls is None and url.scheme == "https":
            self._tls = await asyncio.to_thread(httpx.create_ssl_context)
        tls = self._tls or self._trusts_nobody
        return httpx.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=None)


async def body_of(response: httpx.Response, most: int) -> bytes:
    """Raises FetchFailed: the body is compressed, or larger than `most` bytes."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise FetchFailed(CallStatus.FAILED, "its answer is compressed")
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > most:
            why = f"its answer is larger than {most} bytes"
            raise FetchFailed(CallStatus.TOO_LARGE, why, len(data))
    return bytes(data)


async def _sent(
    client: httpx.AsyncClient, request: httpx.Request, addresses: list[str]
) -> httpx.Response:
    for address in addresses[:-1]:
        try:
            return await client.send(_pinned_to(address, request), stream=True)
        except httpx.ConnectError:
            continue
    return await client.send(_pinned_to(addresses[-1], request), stream=True)


def _pinned_to(address: str, request: httpx.Request) -> httpx.Request:
    """The request to this address. Host, SNI and the certificate's check keep the host's name."""
    pinned = httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        content=request.content,
    )
    try:
        ip_address(request.url.host)
    except ValueError:
        pinned.extensions["sni_hostname"] = request.url.host
    return pinned
