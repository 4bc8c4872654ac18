"""Ends tasks that run in the background.

One cancellation is not enough: `asyncio.wait_for` before Python 3.12, and clients of databases,
lose one that arrives together with the result they wait for. A task with an endless loop then runs
on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 0.2


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels them until every one has ended. What they raise is discarded."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()
