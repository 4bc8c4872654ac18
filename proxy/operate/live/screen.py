"""Where `top` shows its frames: the whole terminal, or lines of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

from rich.console import Console
from rich.live import Live

from proxy.operate.administration.remote import Remote
from proxy.operate.live.frame import Frame
from proxy.operate.live.keyboard import keyboard, without_keys
from proxy.operate.live.reading import reader
from proxy.operate.live.top import Top

FILE_WIDTH, WHOLE_LINES = 100, 1000


def console() -> Console:
    """A console as wide as the terminal; without a terminal it has a fixed width."""
    made = Console(highlight=False)
    if not made.is_terminal:
        made.width = FILE_WIDTH
    return made


def table_console() -> Console:
    """As `console`; without a terminal, no cell of a table is cut."""
    made = console()
    if not made.is_terminal:
        made.width = WHOLE_LINES
    return made


def show_once(proxy: Remote, interval_s: float) -> None:
    """Raises LaunchError."""
    with _printing(proxy, interval_s) as top:
        top.once()


def show(proxy: Remote, interval_s: float) -> None:
    """Until the key `q`, or Ctrl-C. Raises LaunchError: the proxy cannot be read at the start."""
    where = _live if sys.stdout.isatty() else _printing
    with suppress(KeyboardInterrupt), where(proxy, interval_s) as top:
        top.run()


@contextmanager
def _printing(proxy: Remote, interval_s: float) -> Iterator[Top]:
    out = console()

    def put(frame: Frame) -> None:
        out.print(frame.rendered(out.width), soft_wrap=False)

    with reader(proxy) as read:
        yield Top(read, without_keys, put, interval_s=interval_s, url=proxy.url)


@contextmanager
def _live(proxy: Remote, interval_s: float) -> Iterator[Top]:
    live = Live(console=console(), screen=True, auto_refresh=False)

    def put(frame: Frame) -> None:
        live.update(frame.rendered(live.console.width), refresh=True)

    has_keys = sys.stdin.isatty()
    with reader(proxy) as read, keyboard() if has_keys else nullcontext(without_keys) as wait:
        top = Top(read, wait, put, interval_s=interval_s, url=proxy.url, has_keys=has_keys)
        with live:  # only now: a proxy that cannot be read is an error on the terminal as it was
            yield top
