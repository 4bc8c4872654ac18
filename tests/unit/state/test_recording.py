"""An answer that grows: its readers, the bounds of its memory, and the numbers of its events."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api.http.recorded_generation import EventNumbering
from proxy.state.answer import Head, JoinRefused, Notice, Reason
from proxy.state.recording import MemoryBudget, Reader, Recording

pytestmark = pytest.mark.anyio

PART = b"x" * 100
HEAD = Head(status=200, headers=(), request_id="req_1", route="/x")


def recording(most: int = 1_000, budget: int = 10_000) -> Recording:
    made = Recording(MemoryBudget(budget), most)
    made.begin(HEAD)
    return made


async def read(one: Recording, reader: Reader) -> list[bytes]:
    try:
        found = [each async for each in one.parts(reader) if not isinstance(each, Notice)]
    finally:
        one.leave(reader)
    return [b"".join(each) for each in found]


@pytest.mark.parametrize("readers", [0, 1])
async def test_the_generation_waits_for_the_only_reader_and_holds_no_more_than_the_bound(readers):
    one = recording()
    first = [one.enter(0) for _ in range(readers)]
    writing = asyncio.create_task(write(one, 50))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not writing.done()
    assert one.held_bytes <= 1_000
    assert b"".join(await read(one, first[0] if first else one.enter(0))) == PART * 50
    await writing
    with pytest.raises(JoinRefused) as refused:
        one.enter(0)
    assert refused.value.reason is Reason.TOO_LARGE


async def test_all_recordings_together_have_a_bound():
    budget = MemoryBudget(1_000)
    many = [Recording(budget, 1_000) for _ in range(30)]
    readers = [one.enter(0) for one in many]
    tasks = [asyncio.create_task(write(one, 20)) for one in many]
    for _ in range(200):
        await asyncio.sleep(0)
    assert budget.bytes <= 1_000 + 30 * len(PART)
    found = await asyncio.gather(*map(read, many, readers))
    assert {b"".join(parts) for parts in found} == {PART * 20}
    await asyncio.gather(*tasks)
    for one in many:
        one.clear()
    assert budget.bytes == 0


async def write(one: Recording, count: int) -> None:
    if one.head is None:
        one.begin(HEAD)
    for _ in range(count):
        await one.append(PART)
    one.complete()


STREAM = (
    b": keep-alive\n\n"
    b': request_id "x"\n\n'
    b'data: {"a":1}\n\n'
    b": queue 7\n\n"
    b'event: error\ndata: {"b":"id: 2\\n\\n"}\n\n'
    b': timing {"c":1}\n\n'
    b"data: [DONE]\n\n"
)
PARTS = [
    b': request_id "x"\n\nid: 1\ndata: {"a":1}\n\n',
    b'id: 2\nevent: error\ndata: {"b":"id: 2\\n\\n"}\n\n',
    b': timing {"c":1}\n\nid: 3\ndata: [DONE]\n\n',
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_parts_are_the_same_however_the_stream_is_cut(cuts: list[int]):
    places = [0, *sorted(cuts), len(STREAM)]
    numbering, parts, comments = EventNumbering(), [], []
    for begin, end in pairwise(places):
        more, seen = numbering.push(STREAM[begin:end])
        parts += more
        comments += seen
    assert parts + numbering.flush() == PARTS
    assert comments == [b": keep-alive\n\n", b": queue 7\n\n"]
    assert numbering.events == 3
