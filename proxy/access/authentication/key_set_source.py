"""Fetches the key set of an OIDC issuer over HTTP. Called by SigningKeys in the background."""

from __future__ import annotations

from typing import Any

import httpx
import orjson

MOST_BYTES = 1_000_000
DISCOVERY = "/.well-known/openid-configuration"  # OpenID Connect Discovery 1.0, section 4
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class KeySetSource:
    """url: of the key set. None: found by the issuer's discovery document, for each fetch."""

    def __init__(self, issuer: str, url: str | None) -> None:
        self._issuer = issuer
        self._url = url

    async def fetch(self) -> dict[str, Any]:
        """The JWK set.

        Raises:
            httpx.HTTPError: the issuer cannot be reached, or answers with an error.
            ValueError: the answer is not JSON, too large, of another issuer, or not over TLS.
        """
        async with httpx.AsyncClient(follow_redirects=False) as client:
            url = self._url or await self._discovered(client)
            return await _json(client, url)

    async def _discovered(self, client: httpx.AsyncClient) -> str:
        found = await _json(client, self._issuer.rstrip("/") + DISCOVERY)
        if found.get("issuer") != self._issuer:
            raise ValueError(f"the discovery document is of another issuer than {self._issuer}")
        return str(found.get("jwks_uri"))


def is_safe(url: str) -> bool:
    """Whether nobody between us and the server can replace its keys: TLS, or this machine."""
    parsed = httpx.URL(url)
    return parsed.scheme == "https" or (parsed.scheme == "http" and parsed.host in LOOPBACK)


async def _json(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    if not is_safe(url):
        raise ValueError(f"{url} is not https")
    content = bytearray()
    async with client.stream("GET", url) as response:
        response.raise_for_status()
        async for part in response.aiter_bytes():
            content += part
            if len(content) > MOST_BYTES:
                raise ValueError(f"{url} has more than {MOST_BYTES:,} bytes")
    found = orjson.loads(content)
    if response.is_redirect or not isinstance(found, dict):
        raise ValueError(f"{url} is not a JSON object")
    return found
