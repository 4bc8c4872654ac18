"""Middleware that shows limited callers where they stand, on every response, and counts requests
that generate nothing. Listed in `layers`.

Two sets of headers: OpenAI's (`x-ratelimit-limit-requests`, …), and `X-RateLimit-Limit`, … .
"""

from __future__ import annotations

import math
from collections.abc import Awaitable
from contextlib import nullcontext

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.access.limits.caller_meters import Standings
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.api import errors
from proxy.api.http.route_scopes import RouteScopes
from proxy.domain import identity
from proxy.domain.identity import current_caller
from proxy.domain.record import running_record

COUNTED = frozenset({identity.Scope.TOKENS, identity.Scope.MODELS, identity.Scope.KSERVE})

EXPOSED = (
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-exceeded",
    "x-ratelimit-remaining-budget",
    "x-ratelimit-remaining-monthly-tokens",
)


class RateLimitHeaders:
    """Inside the authentication, which sets the caller. Answers errors itself, so that these
    responses have the headers, too. Generations are counted by the service, which knows what they
    cost; here those requests whose route needs one of the scopes COUNTED.
    """

    def __init__(self, app: ASGIApp, *, limiter: RequestLimiter, scopes: RouteScopes) -> None:
        self._app = app
        self._limiter = limiter
        self._scopes = scopes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http" or not current_caller.get().has_limits:
            return self._app(scope, receive, send)
        running_record().standings = standings = Standings()
        return self._answer(scope, receive, send, standings)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, standings: Standings
    ) -> None:
        has_started = False
        is_counted = self._scopes.of(scope["path"]) in COUNTED
        caller = current_caller.get()

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                standings.is_refused = is_counted and message["status"] >= 400
                if not standings.are_known:
                    await self._limiter.look(caller, standings)
                message["headers"] = [*message["headers"], *headers_of(standings)]
            await send(message)

        try:
            async with self._limiter.counted(caller, standings) if is_counted else nullcontext():
                await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            raise
        except Exception as error:
            if has_started:
                raise
            await errors.response_of(error)(scope, receive, send_with_headers)


def headers_of(standings: Standings) -> list[tuple[bytes, bytes]]:
    requests, tokens = standings.requests, standings.tokens
    found: list[tuple[bytes, bytes]] = []
    if requests is not None:
        limit, left, reset_s = requests
        found += (
            (b"x-ratelimit-limit-requests", b"%d" % limit),
            (b"x-ratelimit-remaining-requests", b"%d" % left),
            (b"x-ratelimit-reset-requests", duration(reset_s).encode()),
        )
    if tokens is not None:
        limit, left, reset_s = tokens
        found += (
            (b"x-ratelimit-limit-tokens", b"%d" % limit),
            (b"x-ratelimit-remaining-tokens", b"%d" % left),
            (b"x-ratelimit-reset-tokens", duration(reset_s).encode()),
        )
    if (first := requests or tokens) is not None:
        found += (
            (b"X-RateLimit-Limit", b"%d" % first.limit),
            (b"X-RateLimit-Remaining", b"%d" % first.remaining),
            (b"X-RateLimit-Reset", b"%d" % math.ceil(first.reset_s)),
        )
    if (budget := standings.budget) is not None:
        found.append((b"x-ratelimit-remaining-budget", b"%.6f" % budget))
    if (monthly := standings.monthly_tokens) is not None:
        found.append((b"x-ratelimit-remaining-monthly-tokens", b"%d" % monthly))
    return found


def duration(seconds: float) -> str:
    """As OpenAI writes it: `12ms`, `1.5s`, `6m0s`, `1h0m0s`; rounded up to a millisecond."""
    ms = math.ceil(seconds * 1000)
    if ms < 1000:
        return f"{ms}ms"
    minutes, ms = divmod(ms, 60_000)
    text = f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if not minutes:
        return text
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
