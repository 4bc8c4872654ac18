"""Responses to HTTP/1.0, which has no chunked encoding (RFC 9112, 6.1). Used by `protocols`.

Such a stream ends with its connection. uvicorn would send chunks all the same.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


class UnchunkedHttp10(HttpToolsProtocol):
    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["http_version"] == "1.0":
            app = _Unchunked(app, cycle)
        super()._start_asgi_task(cycle, app)


class _Unchunked:
    """An ASGI application whose responses without a length have no framing."""

    def __init__(self, app: Any, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle = cycle
        self._has_length = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def framed(message: Any) -> None:
            self._frame(message)
            await send(message)

        await self._app(scope, receive, framed)

    def _frame(self, message: Any) -> None:
        """Makes uvicorn's cycle expect exactly the piece of the body that is sent now."""
        cycle = self._cycle
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", ())}
            self._has_length = b"content-length" in names
            if not self._has_length:
                cycle.chunked_encoding = False
        elif not self._has_length:
            cycle.expected_content_length = len(message.get("body", b""))
