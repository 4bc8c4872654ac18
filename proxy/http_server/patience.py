"""Connections whose client does not read: bounded, and cut off after a while. For `connections`.

What a client has not read waits in the kernel's buffer and then in the transport's, up to its
high-water mark; there uvicorn holds the stream back. Only then does anything here run.
"""

from __future__ import annotations

import asyncio

import structlog

logger = structlog.get_logger(__name__)


class PatientWriting:
    """A mixin for uvicorn's protocols. `patience_s`: how long a full buffer may stay full."""

    patience_s: float
    transport: asyncio.Transport
    _until_cut: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]
        self._until_cut = asyncio.get_running_loop().call_later(self.patience_s, self._cut_off)

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
        """Not `close`, which would wait for the client to read what is left."""
        logger.warning(
            "slow reader cut off",
            client=self.transport.get_extra_info("peername"),
            unread_bytes=self.transport.get_write_buffer_size(),
            slow_reader_timeout_s=self.patience_s,
        )
        self.transport.abort()
