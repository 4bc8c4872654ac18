"""An event loop whose clock jumps to the next timer: minutes pass at once, and in order."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing: where the loop would wait for its next timer, time has come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing is left that could happen"
        ready = super().select(0)
        if not ready:
            self.now_s += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def run_in_executor(
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """In this thread: while another worked, the clock would jump by chance."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run; for code that waits for timers, not for sockets or processes."""
    loop = _JumpingLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def jumps(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorates a test that runs on such a loop."""

    @functools.wraps(test)
    def on_the_loop(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return on_the_loop
