"""Middleware that gives the requests and answers of some tenants to the journal."""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from triton_openai.proxy.api.journal.tap import Tap, is_tapped
from triton_openai.proxy.domain.identity import Caller, current_caller
from triton_openai.proxy.journal.journal import Journal
from triton_openai.proxy.journal.record import Record

logger = structlog.get_logger(__name__)


class Journaling:
    """Inside the layer of idempotency keys, so that each generation is recorded once."""

    def __init__(self, app: ASGIApp, *, journal: Journal | None) -> None:
        self._app = app
        self._journal = journal
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = current_caller.get()
        if not (caller.records and is_tapped(scope)):
            await self._app(scope, receive, send)
        elif self._journal is None:
            self._warn(caller)
            await self._app(scope, receive, send)
        elif not self._journal.wants():
            await self._app(scope, receive, send)
        else:
            await self._recorded(self._journal, caller, scope, receive, send)

    async def _recorded(
        self, journal: Journal, caller: Caller, scope: Scope, receive: Receive, send: Send
    ) -> None:
        tap = Tap(journal.limits.record_bytes, journal.hold)
        try:
            await tap.run(self._app, scope, receive, send)
        finally:
            if tap.lost is not None:
                journal.settle(tap.held, tap.lost)
            else:
                journal.add(_record(tap, caller, scope["path"]), tap.held)

    def _warn(self, caller: Caller) -> None:
        if not self._has_warned:
            logger.warning(
                "a tenant's requests should be recorded, and there is no folder for them",
                tenant=caller.tenant,
                advice="set RECORD_DIR, or `triton-openai tenants update NAME --no-records`",
            )
        self._has_warned = True


def _record(tap: Tap, caller: Caller, path: str) -> Record:
    return Record(
        at=tap.at,
        tenant=caller.tenant,
        key_id=caller.key_id,
        request_id=structlog.contextvars.get_contextvars().get("request_id", ""),
        path=path,
        body=tap.body,
        status=tap.status,
        answer=tap.answer,
        is_complete=tap.is_complete,
        first_byte_s=tap.first_byte_s,
        duration_s=tap.duration_s,
    )
