"""Bounds the bytes of all request bodies that this process holds and has not parsed yet.

When the bound is reached, the body that has been arriving for the longest time is cut off: a
client that sends slowly on purpose loses its place to clients that send at full speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from proxy.domain.errors import ErrorCode, RateLimited

logger = structlog.get_logger(__name__)

RETRY_AFTER_S = 5.0
MOST_BODIES_BYTES = 48_000_000  # of all bodies, unless single ones may be large


class BytesInFlight:
    """Shared by all HTTP bodies and WebSocket messages of one process."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self._most = most
        self._arriving: dict[ArrivingBody, None] = {}  # oldest first

    def arriving(self, cut_off: Callable[[], None]) -> ArrivingBody:
        """Registers a body. `cut_off`: called when its room has been given to other bodies."""
        body = ArrivingBody(self, cut_off)
        self._arriving[body] = None
        return body

    def _add(self, body: ArrivingBody, count: int) -> None:
        """Raises RateLimited: there is no room, and no other body to cut off."""
        self.bytes += count
        body.bytes += count
        while self.bytes > self._most:
            oldest = next(iter(self._arriving), None)
            if oldest is None or oldest is body:
                body.close()
                raise no_room()
            logger.warning(
                "body cut off",
                reason="too many bytes in flight",
                bytes=oldest.bytes,
                advice="find the clients that send large bodies slowly, or run another proxy",
            )
            oldest.close()
            oldest.cut_off()

    def _release(self, body: ArrivingBody) -> None:
        self._arriving.pop(body, None)
        self.bytes -= body.bytes
        body.bytes = 0

    def _complete(self, body: ArrivingBody) -> None:
        self._arriving.pop(body, None)


class ArrivingBody:
    """One body or message. Its reader must close it, however it ends."""

    def __init__(self, flight: BytesInFlight, cut_off: Callable[[], None]) -> None:
        self.bytes = 0
        self.cut_off = cut_off
        self._flight = flight

    def add(self, count: int) -> None:
        """Counts more received bytes. Raises RateLimited: there is no room for them."""
        self._flight._add(self, count)

    def complete(self) -> None:
        """Marks the body as received: it keeps its room until closed, and cannot be cut off."""
        self._flight._complete(self)

    def close(self) -> None:
        self._flight._release(self)


class CutOff:
    """Ends the `with` of the task that made it when the body's room is needed for others.

    Raises:
        RateLimited: in place of the cancellation.
    """

    __slots__ = ("_is_cut", "_task")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._is_cut = False

    def cancel(self) -> None:
        self._is_cut = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not self._is_cut or not isinstance(error, asyncio.CancelledError):
            return
        task = self._task
        if task is not None and hasattr(task, "uncancel") and task.uncancel():
            return  # others have cancelled the task, too: Python 3.11 counts them
        raise no_room() from None


def no_room() -> RateLimited:
    return RateLimited(
        "The server is receiving too many large requests at present: send it again later.",
        retry_after_s=RETRY_AFTER_S,
        code=ErrorCode.QUEUE_FULL,
    )
