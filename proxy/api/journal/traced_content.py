"""Middleware that keeps requests and answers for their spans. Listed only where spans have them."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from triton_openai.proxy.api.journal.tap import Tap, is_tapped
from triton_openai.proxy.domain.timeline import Exchange, current_timeline
from triton_openai.proxy.telemetry.held_bytes import HeldBytes

MOST_BYTES = 1_000_000  # of a request and its answer; of what is larger, spans have neither


class TracedContent:
    """Beside the journal's layer. held: of this process."""

    def __init__(self, app: ASGIApp, *, held: HeldBytes) -> None:
        self._app = app
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        timeline = current_timeline.get()
        if timeline is None or not is_tapped(scope):
            await self._app(scope, receive, send)
            return
        tap = Tap(MOST_BYTES, self._held.hold)
        try:
            await tap.run(self._app, scope, receive, send)
        finally:
            if timeline.ended is None:
                timeline.exchange = _exchange(tap)
            else:  # its spans are written: the answer went on for the next reader
                self._held.give_back(tap.held)


def _exchange(tap: Tap) -> Exchange:
    if tap.lost is not None:
        return Exchange(held=tap.held, lost=tap.lost.value)
    return Exchange(body=tap.body, answer=tap.answer, held=tap.held)
