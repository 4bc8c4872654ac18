"""Middleware that logs requests and answers at `debug`. Listed only where LOG_CONTENT is set."""

from __future__ import annotations

import logging

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from triton_openai.proxy.api.journal.tap import Tap, is_tapped
from triton_openai.proxy.telemetry.kept_requests import fields_of, may_be_kept

EVENT = "content"
MOST_BYTES = 200_000  # of a request and its answer; what is larger has a line without them
logger = structlog.get_logger(__name__)


class ContentLog:
    """Beside the journal's layer. Requests with `store: false` are not logged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not (is_tapped(scope) and logger.is_enabled_for(logging.DEBUG)):
            await self._app(scope, receive, send)
            return
        tap = Tap(MOST_BYTES, lambda _: True)
        try:
            await tap.run(self._app, scope, receive, send)
        finally:
            _log(tap)


def _log(tap: Tap) -> None:
    if tap.lost is not None:
        logger.debug(EVENT, lost=tap.lost.value)
        return
    fields = fields_of(tap.body)
    if fields is not None and may_be_kept(fields):
        logger.debug(EVENT, request=fields, answer=tap.answer.decode("utf-8", "replace"))
