"""StartGate: a burst begins over many turns of the event loop, in order."""

from __future__ import annotations

import asyncio

import pytest

from proxy.access.start_gate import StartGate

pytestmark = pytest.mark.anyio


def test_a_burst_begins_a_few_a_turn_and_in_order():
    async def scenario():
        gate, began, a_turn = StartGate(2), [], []

        async def begin(number: int) -> None:
            await gate.wait()
            began.append(number)

        tasks = [asyncio.ensure_future(begin(number)) for number in range(11)]
        while len(began) < 11:
            before = len(began)
            await asyncio.sleep(0)
            a_turn.append(len(began) - before)
        await asyncio.gather(*tasks)
        return began, a_turn

    began, a_turn = asyncio.run(scenario())
    assert began == list(range(11))
    assert max(a_turn) <= 2
