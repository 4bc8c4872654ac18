"""What a streamed answer shows of its place in the queue, before its first part and after."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.api.http.answer import StreamedAnswer
from proxy.api.http.own_headers import queue_headers
from proxy.api.http.stream_format import SSE
from proxy.domain.record import RequestRecord, Wait
from proxy.domain.scheduling import Standing
from proxy.generation.service import Generation
from tests.doubles import clock

KEEP_ALIVE_S = 15.0


class Client:
    """What it has received, and when."""

    def __init__(self) -> None:
        self.head: dict[str, str] | None = None
        self.parts: list[tuple[float, bytes]] = []

    async def send(self, message: dict) -> None:
        if message["type"] == "http.response.start":
            self.head = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            now = asyncio.get_running_loop().time()
            self.parts.append((round(now, 1), message["body"]))


class Hi:
    def chunks(self, _: object) -> list[dict]:
        return [{"hi": 1}]


async def answered(client: Client, record: RequestRecord, wait: Callable[[], Awaitable]) -> None:
    """Sends one event after `wait`."""

    async def events():
        await wait()
        yield None

    async def receive() -> dict:
        await asyncio.Event().wait()

    generation = Generation(events=events(), record=record)
    answer = StreamedAnswer(generation, Hi(), SSE, keep_alive_s=KEEP_ALIVE_S)
    await answer({}, receive, client.send)


def wait_at(record: RequestRecord, position: int) -> None:
    before, now = record.queued_since, asyncio.get_running_loop().time()
    record.waits["one"] = Wait(Standing(position, 1.0), now if before is None else before, now)


def begin(record: RequestRecord) -> None:
    record.queue_s = asyncio.get_running_loop().time() - record.waits.pop("one").since


def test_an_answer_that_never_waited_says_nothing_of_a_queue():
    assert queue_headers(RequestRecord(), 5.0) == {}


def test_an_answer_that_has_waited_says_how_long():
    headers = queue_headers(RequestRecord(queue_s=1.23456), 5.0)
    assert headers == {"x-queue-position": "0", "x-queue-wait": "1.235"}


def test_one_that_waits_again_says_its_longest_wait():
    record = RequestRecord(queue_s=2.0, waits={"one": Wait(Standing(3, None), 10.0, 10.0)})
    assert queue_headers(record, 11.5) == {"x-queue-position": "3", "x-queue-wait": "2.000"}
    assert queue_headers(record, 12.5) == {"x-queue-position": "3", "x-queue-wait": "2.500"}


def test_one_that_still_waits_says_how_long_it_will_probably_have_waited():
    record = RequestRecord(waits={"one": Wait(Standing(3, 7.0), 10.0, 11.0)})
    assert queue_headers(record, 11.5) == {"x-queue-position": "3", "x-queue-wait": "8.000"}
    assert queue_headers(record, 19.0) == {"x-queue-position": "3", "x-queue-wait": "9.000"}


END = [b'data: {"hi":1}\n\n', b"data: [DONE]\n\n"]


def parts_of(wait: Callable[[Client, RequestRecord], Awaitable]) -> list[tuple[float, bytes]]:
    async def run() -> list[tuple[float, bytes]]:
        client, record = Client(), RequestRecord()
        began = asyncio.get_running_loop().time()
        await answered(client, record, lambda: wait(client, record))
        assert [text for _, text in client.parts[-2:]] == END
        return [(round(at - began, 1), text) for at, text in client.parts[:-2]]

    return clock.run(run())


def test_the_head_leaves_with_the_keep_alive_and_each_new_position_is_a_comment():
    async def wait(client: Client, record: RequestRecord) -> None:
        wait_at(record, 9)
        await asyncio.sleep(10)
        wait_at(record, 7)
        assert client.head is None, "an error could still have its own status"
        await asyncio.sleep(6)
        assert client.head["x-queue-position"] == "7"
        assert client.head["x-queue-wait"] == "15.000"
        wait_at(record, 6)
        await asyncio.sleep(1.1)
        wait_at(record, 5)
        wait_at(record, 4)
        await asyncio.sleep(1.1)
        begin(record)

    parts = parts_of(wait)
    assert [text for _, text in parts] == [b": queue 7\n\n", b": queue 6\n\n", b": queue 4\n\n"]
    assert parts[0][0] == KEEP_ALIVE_S


def test_a_position_that_stays_is_a_comment_with_each_keep_alive():
    async def wait(client: Client, record: RequestRecord) -> None:
        wait_at(record, 2)
        await asyncio.sleep(2 * KEEP_ALIVE_S + 1)

    assert [text for _, text in parts_of(wait)] == [b": queue 2\n\n"] * 2


def test_after_the_wait_comments_are_signs_of_life_again():
    async def wait(client: Client, record: RequestRecord) -> None:
        wait_at(record, 2)
        await asyncio.sleep(KEEP_ALIVE_S + 0.1)
        begin(record)
        await asyncio.sleep(1.5 * KEEP_ALIVE_S)

    assert [text for _, text in parts_of(wait)] == [b": queue 2\n\n", b": keep-alive\n\n"]
