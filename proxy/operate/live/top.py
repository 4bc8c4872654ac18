"""The loop of `triton-openai top`: shows the last frame that a proxy has sent, once an interval.

Frames are shown on the whole terminal, or as lines of a file.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from threading import Event, Thread

from rich.console import Console
from rich.live import Live

from proxy.domain.errors import LaunchError
from proxy.operate.administration.remote import ADMIN, AdminClient
from proxy.operate.live.frame import Frame, Order

ORDERS = {order.value: order for order in Order}
FILE_WIDTH, WHOLE_LINES = 100, 1000
QUIT = "q"
RETRY_S = 0.5
NO_OPERATOR = (
    f"Without the state and load of endpoints: set {ADMIN.variable}, or give --key-file, with a "
    "key of the scope admin"
)
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


class FrameReader:
    """Reads a proxy's live status in a thread, so that keys act at once."""

    def __init__(self, proxy: AdminClient) -> None:
        self._proxy = proxy
        self._last: Frame | LaunchError
        self._has_read = Event()
        self._is_closed = False
        Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """The thread ends with its next event, or with its connection."""
        self._is_closed = True

    def last(self) -> Frame:
        """The last frame; waits for the first one. Raises LaunchError: the proxy cannot be read."""
        self._has_read.wait()
        if isinstance(self._last, LaunchError):
            raise self._last
        return self._last

    def _run(self) -> None:
        """Again and again: a proxy ends the stream after some minutes, and may be restarted."""
        while not self._is_closed:
            try:
                for frame in self._frames():
                    self._set(frame)
            except LaunchError as error:
                self._set(error)
            except (LookupError, RuntimeError, TypeError, ValueError) as error:
                url = self._proxy.url  # RuntimeError: the client was closed meanwhile
                self._set(LaunchError(f"the proxy at {url} is another release ({error!r})"))
            time.sleep(RETRY_S)

    def _set(self, found: Frame | LaunchError) -> None:
        self._last = found
        self._has_read.set()

    def _frames(self) -> Iterator[Frame]:
        columns, notes = {}, [NO_OPERATOR]
        for event in self._proxy.events("/metrics/live", scope="admin, or metrics"):
            if event["type"] == "hello":
                columns, notes = event["columns"], [] if event["is_operator"] else notes
            else:
                yield Frame(url=self._proxy.url, live=event, columns=columns, notes=notes)


class Top:
    """Reads the proxy for the first time when it is made, which raises what `read` raises.

    read: raises LaunchError. show: puts a frame on the screen. clock: seconds.
    """

    def __init__(
        self,
        read: Callable[[], Frame],
        wait: Wait,
        show: Callable[[Frame], None],
        *,
        interval_s: float,
        has_keys: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._wait = wait
        self._show = show
        self._interval_s = interval_s
        self._clock = clock
        self._frame = replace(read(), has_keys=has_keys)

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
        shown = self._frame
        self._frame = replace(self._read(), order=shown.order, has_keys=shown.has_keys)

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

    with (
        suppress(KeyboardInterrupt),
        closing(FrameReader(proxy)) as reader,
        keyboard() if has_keys else nullcontext(time.sleep) as wait,
    ):
        top = Top(reader.last, wait, put, interval_s=interval_s, has_keys=has_keys)
        # Only now: a proxy that cannot be read is an error on the terminal as it was.
        with live if is_live else nullcontext():
            top.once() if is_once else top.run()
