"""Cuts off clients that do not read. Used by `protocols`.

Bytes that a client has not read wait in the kernel's buffer, then in the transport's. At its
high-water mark uvicorn pauses the stream, and the time limit here begins.
"""

from __future__ import annotations

import asyncio

import structlog

logger = structlog.get_logger(__name__)


class SlowReaderLimit:
    """A mixin for uvicorn's protocols. reader_timeout_s: how long the buffer may stay full."""

    reader_timeout_s: float
    transport: asyncio.Transport
    _until_cut: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        loop = asyncio.get_running_loop()
        self._until_cut = loop.call_later(self.reader_timeout_s, self._cut_off)

    def resume_writing(self) -> None:
        self._stop_waiting()
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)  # type: ignore[misc]

    def _stop_waiting(self) -> None:
        if self._until_cut is not None:
            self._until_cut.cancel()
            self._until_cut = None

    def _cut_off(self) -> None:
        """Aborts, because `close` would wait until the client has read the rest."""
        logger.warning(
            "slow reader cut off",
            client=self.transport.get_extra_info("peername"),
            unread_bytes=self.transport.get_write_buffer_size(),
            slow_reader_timeout_s=self.reader_timeout_s,
            advice="the client or the network reads too slowly; SLOW_READER_TIMEOUT_S says how "
            "long it may",
        )
        self.transport.abort()
