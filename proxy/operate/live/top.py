"""The loop of `triton-openai top`: reads a proxy once an interval, and shows a frame each time.

Frames are shown on the whole terminal, or as lines of a file.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

from rich.console import Console
from rich.live import Live

from proxy.domain.errors import LaunchError
from proxy.operate.administration.pools import ENDPOINTS
from proxy.operate.administration.remote import AdminClient, Refused
from proxy.operate.live.frame import Frame, Listing, Order
from proxy.telemetry.metrics_window import Page, Window, parsed

ORDERS = {order.value: order for order in Order}
FILE_WIDTH, WHOLE_LINES = 100, 1000
QUIT = "q"
Wait = Callable[[float], str | None]
"""Waits so many seconds at most; returns the key that ended it."""


@contextmanager
def keyboard() -> Iterator[Wait]:
    """The terminal is as before when the `with` ends."""
    import termios  # not on Windows, where the rest of the command line can be imported
    import tty

    stream = sys.stdin
    before = termios.tcgetattr(stream)
    try:
        tty.setcbreak(stream)
        yield _key
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)


def _key(seconds: float) -> str | None:
    """Reads the descriptor itself: sys.stdin could keep a key, which select would not see."""
    descriptor = sys.stdin.fileno()
    ready, _, _ = select.select([descriptor], [], [], seconds)
    if not ready:
        return None
    return os.read(descriptor, 1).decode(errors="replace") or QUIT  # nothing: the terminal is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """listing: of the endpoints; None, with a note, where the key may not read it."""

    page: Page
    listing: Listing | None
    notes: Sequence[str] = ()


def read(proxy: AdminClient) -> Reading:
    """Raises LaunchError: the proxy cannot be reached, or refuses /metrics."""
    page = parsed(proxy.text("/metrics", scope="admin, or metrics"))
    try:
        return Reading(page=page, listing=proxy.call("GET", ENDPOINTS))
    except Refused as error:
        note = f"Without the state and load of endpoints: {error}"
        return Reading(page=page, listing=None, notes=(note,))


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
        self._frame = Frame(url=url, window=self._window, listing=None, has_keys=has_keys)
        self._next()

    def once(self) -> None:
        """Shows one frame, after one interval. Raises LaunchError."""
        self._pause()
        self._next()
        self._show(self._frame)

    def run(self) -> None:
        """Shows a frame at once, and after every interval, until the key `q`.

        While the proxy cannot be read, the last figures stay, with the reason.
        """
        self._show(self._frame)
        while self._pause() != QUIT:
            try:
                self._next()
            except LaunchError as error:
                self._frame = replace(self._frame, notes=(f"Old figures: {error}",))
            self._show(self._frame)

    def _next(self) -> None:
        reading = self._read()
        self._window.add(reading.page, self._clock())
        self._frame = replace(self._frame, listing=reading.listing, notes=reading.notes)

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


def console(file_width: int = FILE_WIDTH) -> Console:
    """A console as wide as the terminal; without a terminal, of a fixed width."""
    made = Console(highlight=False)
    if not made.is_terminal:
        made.width = file_width
    return made


def show(proxy: AdminClient, interval_s: float, *, is_once: bool) -> None:
    """Until the key `q`, or Ctrl-C. Raises LaunchError: the proxy cannot be read at the start."""
    is_live = sys.stdout.isatty() and not is_once
    has_keys = is_live and sys.stdin.isatty()
    out = console()
    live = Live(console=out, screen=True, auto_refresh=False)

    def put(frame: Frame) -> None:
        if is_live:
            live.update(frame, refresh=True)
        else:
            out.print(frame)

    with suppress(KeyboardInterrupt), keyboard() if has_keys else nullcontext(time.sleep) as wait:
        top = Top(
            lambda: read(proxy),
            wait,
            put,
            interval_s=interval_s,
            url=proxy.url,
            has_keys=has_keys,
        )
        # Only now: a proxy that cannot be read is an error on the terminal as it was.
        with live if is_live else nullcontext():
            top.once() if is_once else top.run()
