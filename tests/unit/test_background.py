"""Background tasks end, also those that lose a cancellation."""

from __future__ import annotations

import asyncio
import contextlib

from proxy import background


def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    async def main() -> None:
        lost = 0

        async def deaf() -> None:
            nonlocal lost
            while lost < 2:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)
                lost += 1
            await asyncio.sleep(3600)

        task = asyncio.create_task(deaf())
        await asyncio.sleep(0)
        await background.end([task])
        assert task.cancelled()
        assert lost == 2

    asyncio.run(main())


def test_what_a_task_raises_is_discarded() -> None:
    async def main() -> None:
        async def failing() -> None:
            raise ValueError("before it was ended")

        tasks = [asyncio.create_task(failing()), asyncio.create_task(asyncio.sleep(3600))]
        await asyncio.sleep(0)
        await background.end(tasks)
        assert all(task.done() for task in tasks)

    asyncio.run(main())


def test_no_tasks_end_at_once() -> None:
    asyncio.run(background.end([]))
