"""triton_drain: it waits while an engine has requests, and a little longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from proxy.operate.triton_server import drain

BUSY = 'engine_requests_unfinished{model="a_engine",version="1"} 2\n'
IDLE = 'engine_requests_unfinished{model="a_engine",version="1"} 0\n'


def waits(answers: list[str], *, at_most_s: float = 20.0, quiet_s: float = 0.0) -> bool:
    """The last answer is given for ever."""

    def answer() -> Iterator[str]:
        while True:
            yield answers.pop(0) if len(answers) > 1 else answers[0]

    given = answer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\n\r\n{next(given)}".encode())
        writer.close()

    async def run() -> bool:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await drain.until_idle(port, at_most_s, quiet_s=quiet_s, every_s=0.001)

    return asyncio.run(run())


def test_it_waits_until_nothing_runs():
    answers = [BUSY, BUSY, BUSY, IDLE]
    assert waits(answers)
    assert answers == [IDLE]


def test_what_begins_in_the_quiet_time_is_waited_for():
    answers = [IDLE, BUSY, IDLE]
    assert waits(answers, quiet_s=0.2)
    assert answers == [IDLE]


def test_it_gives_up_when_the_time_is_over():
    assert not waits([BUSY], at_most_s=0.1)


def test_a_triton_that_has_ended_is_idle():
    assert asyncio.run(drain.until_idle(1, 20.0))


def test_requests_of_both_engines_count():
    active = 'nv_trt_llm_request_metrics{model="b",request_type="active",version="1"} 3'
    waiting = 'nv_trt_llm_request_metrics{model="b",request_type="waiting",version="1"} 5'
    assert drain.unfinished(f"# HELP x\n{BUSY}{active}\n{waiting}\n") == 5.0
