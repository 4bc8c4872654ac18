"""One HTTP GET to a server of this machine, to learn whether it is ready."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

from proxy.settings import Settings


def own_address(host: str) -> str:
    """Where a server that listens on this host can be reached from the same machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def own_url(settings: Settings) -> str:
    """Where the proxy of these settings is reached from this machine."""
    scheme, host = "http" if settings.tls_cert_file is None else "https", own_address(settings.host)
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{settings.port}"


async def get(
    host: str, port: int, path: str, timeout_s: float = 2.0, *, has_tls: bool = False
) -> tuple[int, str]:
    """Status and body. Any certificate is taken.

    Raises:
        OSError: nothing listens there, or it does not answer in time or in HTTP.
    """
    import httpx  # takes a tenth of a second, which commands that need no probe save

    async def response() -> httpx.Response:
        # no client: it would log each request, and use a proxy of the environment
        async with httpx.AsyncHTTPTransport(verify=False) as transport:
            found = await transport.handle_async_request(httpx.Request("GET", url))
            await found.aread()
            return found

    url = httpx.URL(scheme="https" if has_tls else "http", host=host, port=port, path=path)
    try:
        found = await asyncio.wait_for(response(), timeout_s)
    except (httpx.HTTPError, asyncio.TimeoutError) as error:
        raise OSError(f"{host}:{port} did not respond") from error
    return found.status_code, found.text
