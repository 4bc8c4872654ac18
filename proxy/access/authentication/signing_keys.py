"""The public keys of an OIDC issuer. Fetched in the background, used by `tokens`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
import jwt
import orjson
import structlog
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, RSAPSSAlgorithm

from proxy.domain.key_records import KeysUnavailable
from proxy.settings.callers import SAFE_URL

MOST_BYTES = 1_000_000
DISCOVERY = "/.well-known/openid-configuration"  # OpenID Connect Discovery 1.0, section 4
REFRESH_S = 300.0
RETRY_S = 5.0  # after a failure
# between two fetches because of unknown keys, so that callers cannot cause a flood
REFETCH_S = 10.0
FETCH_TIMEOUT_S = 5.0
KEEP_S = 3600.0  # how long keys stay in use while the issuer cannot be reached
MOST_KEYS = 100
SMALLEST_RSA_BITS = 2048


async def fetch_key_set(issuer: str, url: str | None) -> dict[str, Any]:
    """The JWK set of an issuer. url: of the set; None: the issuer's discovery document names it.

    Raises:
        httpx.HTTPError: the issuer cannot be reached, or answers with an error.
        ValueError: the answer is not JSON, too large, of another issuer, or not over TLS.
    """
    async with httpx.AsyncClient(follow_redirects=False) as client:
        if not url:
            found = await _json(client, issuer.rstrip("/") + DISCOVERY)
            if found.get("issuer") != issuer:
                raise ValueError(f"the discovery document is of another issuer than {issuer}")
            url = str(found.get("jwks_uri"))
        return await _json(client, url)


async def _json(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    if not SAFE_URL.match(url):
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


PUBLIC = (RSAAlgorithm, RSAPSSAlgorithm, ECAlgorithm, OKPAlgorithm)

logger = structlog.get_logger(__name__)

KeySet = Mapping[str, Any]  # a JWK set, RFC 7517
Fetch = Callable[[], Awaitable[KeySet]]


class SigningKeys:
    """fetch: gets the key set; any exception counts as a failure. clock: monotonic, in seconds.
    report: gets whether the issuer answers, after each fetch.
    """

    def __init__(
        self, fetch: Fetch, *, clock: Callable[[], float], report: Callable[[bool], None]
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._report = report
        self._keys: list[Mapping[str, Any]] = []
        self._fetched_at = -math.inf
        self._asked_at = -math.inf
        self._fetching: asyncio.Task[bool] | None = None
        self.answers = True

    async def run(self) -> None:
        while True:
            has_succeeded = await self.refresh()
            await asyncio.sleep(REFRESH_S if has_succeeded else RETRY_S)

    async def refresh(self) -> bool:
        """Fetches now, or waits for the fetch in progress. Returns whether it succeeded."""
        if self._fetching is None:
            self._fetching = asyncio.ensure_future(self._refreshed())
        return await asyncio.shield(self._fetching)

    async def find(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key of this id for this algorithm; None if the issuer has none.

        Only an unknown id waits for a fetch, and only every REFETCH_S. Without an id the issuer
        must have a single key.

        Raises:
            KeysUnavailable: the issuer could not be reached for KEEP_S.
        """
        found = self._held(key_id, algorithm)
        may_fetch = self._fetching is not None or self._clock() - self._asked_at >= REFETCH_S
        if found is None and may_fetch:
            self._asked_at = self._clock()
            await self.refresh()
            found = self._held(key_id, algorithm)
        if self._clock() - self._fetched_at > KEEP_S:
            raise KeysUnavailable("the issuer cannot be reached")
        return found

    def _held(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        found = [key for key in self._keys if key.get("kid") == key_id]
        if key_id is None and not found:
            found = self._keys
        return _usable(found[0], algorithm) if len(found) == 1 else None

    async def _refreshed(self) -> bool:
        try:
            self._keys = _signing(await asyncio.wait_for(self._fetch(), FETCH_TIMEOUT_S))
            self._fetched_at = self._clock()
        except Exception as error:  # whatever the issuer sent, the keys that we have stay in use
            if self.answers:
                logger.error(
                    "signing keys cannot be fetched",
                    detail=repr(error),
                    known_keys_work_s=KEEP_S,
                    advice="look whether JWT_JWKS_URL, or JWT_ISSUER, can be reached from here",
                )
            self.answers = False
        else:
            if not self.answers:
                logger.info("signing keys can be fetched again")
            self.answers = True
        self._fetching = None
        self._report(self.answers)
        return self.answers


def _signing(key_set: KeySet) -> list[Mapping[str, Any]]:
    """
    Raises:
        ValueError: it is not a key set.
    """
    keys = key_set.get("keys") if isinstance(key_set, Mapping) else None
    if not isinstance(keys, list) or len(keys) > MOST_KEYS:
        raise ValueError(f"not a JWK set with at most {MOST_KEYS} keys")
    return [key for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig"]


def _usable(key: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    """None if the key is not public, is for another algorithm, or is too short."""
    if key.get("kty") == "oct" or key.get("alg", algorithm) != algorithm:
        return None
    try:
        made = jwt.PyJWK(dict(key), algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if not isinstance(made.Algorithm, PUBLIC):
        return None
    bits = getattr(made.key, "key_size", 0) if key.get("kty") == "RSA" else SMALLEST_RSA_BITS
    return made if bits >= SMALLEST_RSA_BITS else None
