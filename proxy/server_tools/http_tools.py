"""Tools behind HTTP endpoints. See domain.server_tools.ToolRunner; made by app."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import httpx

from triton_openai.proxy.domain.server_tools import CallStatus, ServerTool, ToolResult
from triton_openai.proxy.server_tools.addresses import Resolve, is_public, resolved
from triton_openai.proxy.server_tools.secrets import Secrets

ERROR_BODY_TOLD = 500  # characters
TEXT_TYPES = ("text/", "application/json", "application/xml", "application/problem+json")
OUR_HEADERS = {
    "User-Agent": "triton-openai",
    "Accept": "application/json, text/*",
    "Accept-Encoding": "identity",  # so that what is counted is what is read
}


class _Failed(Exception):
    """The call has no result; the text says why, for the model."""

    def __init__(self, status: CallStatus, text: str, response_bytes: int = 0) -> None:
        super().__init__(text)
        self.result = ToolResult(status=status, text=text, response_bytes=response_bytes)


class HttpTools:
    """One connection a call, to an address that was checked: none is kept, none is resolved twice.

    Environment proxies and redirects are not followed.
    """

    def __init__(self, secrets: Secrets, resolve: Resolve = resolved) -> None:
        self._secrets = secrets
        self._resolve = resolve
        self._tls: ssl.SSLContext | None = None
        self._trusts_nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    async def run(
        self, tool: ServerTool, arguments: Mapping[str, Any], *, timeout_s: float
    ) -> ToolResult:
        try:
            result = await asyncio.wait_for(self._called(tool, arguments), timeout_s)
        except _Failed as failure:
            result = failure.result
        except (asyncio.TimeoutError, httpx.TimeoutException):
            text = f"The tool did not answer within {timeout_s:g} s."
            result = ToolResult(status=CallStatus.TIMEOUT, text=text)
        except (httpx.HTTPError, OSError, UnicodeError):
            text = "The tool cannot be reached at present."
            result = ToolResult(status=CallStatus.FAILED, text=text)
        return ToolResult(
            status=result.status,
            text=self._secrets.hidden_in(result.text),
            response_bytes=result.response_bytes,
        )

    async def _called(self, tool: ServerTool, arguments: Mapping[str, Any]) -> ToolResult:
        request = _request(tool, arguments, self._secrets.filled(tool.headers))
        async with (
            await self._client(request.url) as client,
            self._answered(client, tool, request) as response,
        ):
            data = await _body(response, tool.max_response_bytes)
        text = data.decode(response.charset_encoding or "utf-8", errors="replace")
        if response.is_redirect:
            told = f"The tool failed: it redirects ({response.status_code}), which is not followed."
            raise _Failed(CallStatus.FAILED, told, len(data))
        if response.status_code >= 400:
            told = f"The tool failed with status {response.status_code}: {text[:ERROR_BODY_TOLD]}"
            raise _Failed(CallStatus.FAILED, told, len(data))
        return ToolResult(status=CallStatus.OK, text=text, response_bytes=len(data))

    async def _client(self, url: httpx.URL) -> httpx.AsyncClient:
        """Reading the certificates takes longer than most calls, so it is done once."""
        if self._tls is None and url.scheme == "https":
            self._tls = await asyncio.to_thread(httpx.create_ssl_context)
        tls = self._tls or self._trusts_nobody
        return httpx.AsyncClient(verify=tls, trust_env=False, follow_redirects=False, timeout=None)

    @asynccontextmanager
    async def _answered(
        self, client: httpx.AsyncClient, tool: ServerTool, request: httpx.Request
    ) -> AsyncIterator[httpx.Response]:
        response = await self._sent(client, tool, request)
        try:
            yield response
        finally:
            await response.aclose()

    async def _sent(
        self, client: httpx.AsyncClient, tool: ServerTool, request: httpx.Request
    ) -> httpx.Response:
        """To the first address that can be connected to."""
        addresses = await self._addresses(tool, request.url)
        for address in addresses[:-1]:
            try:
                return await client.send(_to(address, request), stream=True)
            except httpx.ConnectError:
                continue
        return await client.send(_to(addresses[-1], request), stream=True)

    async def _addresses(self, tool: ServerTool, url: httpx.URL) -> list[str]:
        """All of the host's; one that may not be gone to spoils the rest."""
        port = url.port or (443 if url.scheme == "https" else 80)
        addresses = await self._resolve(url.host, port)
        if not tool.allows_private_addresses and not all(map(is_public, addresses)):
            told = "The tool cannot be reached: its address is not a public one."
            raise _Failed(CallStatus.REFUSED_ADDRESS, told)
        return addresses


def _request(
    tool: ServerTool, arguments: Mapping[str, Any], headers: Mapping[str, str]
) -> httpx.Request:
    url = httpx.URL(tool.url)
    if tool.method == "GET":
        url = url.copy_merge_params(_query(arguments))
        return httpx.Request("GET", url, headers={**OUR_HEADERS, **headers})
    return httpx.Request("POST", url, headers={**OUR_HEADERS, **headers}, json=dict(arguments))


def _query(arguments: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """null is left out, as nothing that was given."""
    for name, value in arguments.items():
        if isinstance(value, (dict, list)):
            raise _Failed(
                CallStatus.INVALID_ARGUMENTS,
                f"The argument {name!r} must be a string, a number or a boolean.",
            )
    return {name: value for name, value in arguments.items() if value is not None}


def _to(address: str, request: httpx.Request) -> httpx.Request:
    """The same request to this address; Host, SNI and the certificate's name stay the host's."""
    pinned = httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        content=request.content,
    )
    if not _is_address(request.url.host):
        pinned.extensions["sni_hostname"] = request.url.host
    return pinned


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def _body(response: httpx.Response, most: int) -> bytes:
    """Raises _Failed: it is too large, encoded, or neither text nor JSON."""
    kind = response.headers.get("content-type", "text/plain").lower()
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _Failed(CallStatus.FAILED, "The tool failed: its answer is compressed.")
    if not response.is_redirect and not (kind.startswith(TEXT_TYPES) or "+json" in kind):
        raise _Failed(CallStatus.FAILED, "The tool failed: its answer is neither text nor JSON.")
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > most:
            told = f"The tool failed: its answer is larger than {most} bytes."
            raise _Failed(CallStatus.TOO_LARGE, told, len(data))
    return bytes(data)
