"""The port to work that may not hold up the event loop: a caller's schemas, grammars, templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class TooCostly(Exception):
    """The function needed more CPU time or memory than it may; the message gives the limits."""


class Sandbox(Protocol):
    """Runs pure functions, with limits on CPU time and memory."""

    async def start(self) -> None:
        """Makes the first call as fast as the later ones; calls may come before it returns.

        It returns in bounded time, and raises nothing: a fault is logged.
        """
        ...

    async def run(
        self,
        caller: str,
        function: Callable[Arguments, Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """`function(*args, **kwargs)`. Function, arguments and result must be picklable.

        Args:
            caller: whose turn it takes. Each tenant has one call running at a time, and its callers
                take turns.

        Raises:
            TooCostly: the call was ended at its limits.
            RateLimited: this caller has too many calls waiting, or the call waited too long.
            Exception: whatever the function raises.
        """
        ...
