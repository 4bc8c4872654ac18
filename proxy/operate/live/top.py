"""The loop of `triton-openai top`: reads a proxy once an interval, and shows a frame each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from proxy.operate.live.frame import Frame, Order
from proxy.operate.live.keyboard import QUIT, Wait
from proxy.operate.live.overview import overview
from proxy.operate.live.reading import Reading
from proxy.operate.live.window import Window
from proxy.processes.errors import LaunchError

ORDERS = {order.value: order for order in Order}


class Top:
    """Reads the proxy for the first time when it is made, which raises what `read` raises.

    read: raises LaunchError. show: puts a frame on the screen. clock: seconds.
    """

    def __init__(
        self,
        read: Callable[[], Reading],
        wait: Wait,
        show: Callable[[Frame], None],
        *,
        interval_s: float,
        url: str,
        has_keys: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._wait = wait
        self._show = show
        self._interval_s = interval_s
        self._clock = clock
        self._window = Window()
        reading = self._taken()
        found = overview(self._window, reading.listing)
        self._frame = Frame(overview=found, url=url, notes=reading.notes, has_keys=has_keys)

    def once(self) -> None:
        """Shows one frame, after one interval. Raises LaunchError."""
        self._pause()
        self._frame = self._next()
        self._show(self._frame)

    def run(self) -> None:
        """Shows a frame at once, and after every interval, until the key `q`.

        While the proxy cannot be read, the last frame stays, with the reason.
        """
        self._show(self._frame)
        while self._pause() != QUIT:
            try:
                self._frame = self._next()
            except LaunchError as error:
                self._frame = replace(self._frame, notes=(f"Old figures: {error}",))
            self._show(self._frame)

    def _taken(self) -> Reading:
        reading = self._read()
        self._window.add(reading.page, self._clock())
        return reading

    def _next(self) -> Frame:
        reading = self._taken()
        found = overview(self._window, reading.listing)
        return replace(self._frame, overview=found, notes=reading.notes)

    def _pause(self) -> str | None:
        """Waits for one interval; keys that sort act at once. Returns `q` if it was pressed."""
        end = self._clock() + self._interval_s
        while (left := end - self._clock()) > 0:
            key = self._wait(left)
            if key == QUIT:
                return QUIT
            if key in ORDERS:
                self._frame = replace(self._frame, order=ORDERS[key])
                self._show(self._frame)
        return None
