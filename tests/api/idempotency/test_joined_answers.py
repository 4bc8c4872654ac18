"""Requests that join a running answer: who gets what, and until when it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.api.http.idempotency import LOST
from proxy.domain.identity import Caller, Limits
from proxy.domain.output import TokenDelta
from tests.api.idempotency.stepped_engine import SteppedEngine
from tests.doubles.engine import deltas, large
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.limits import AsCaller, caller

CHAT = "/v1/chat/completions"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 60}
STREAM = {**BODY, "stream": True}
TEXT = "abcdef"
pytestmark = pytest.mark.anyio


class Front:
    """The proxy over an engine that the test steps."""

    def __init__(self, app: Any, engine: SteppedEngine) -> None:
        self.app = app
        self.engine = engine

    def call(self, body: Any = STREAM, key: str = "k", **headers: str) -> Call:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Call(self.app, CHAT, body, {"idempotency-key": key, **named})


@asynccontextmanager
async def front(
    answer: str | list[TokenDelta] = TEXT, who: Caller | None = None, **settings: Any
) -> AsyncIterator[Front]:
    engine = SteppedEngine(deltas(answer) if isinstance(answer, str) else answer)
    app = application(engine, **settings)
    async with started(app):
        yield Front(AsCaller(app, who or caller()), engine)


async def test_a_reader_of_a_running_answer_takes_no_part_in_what_runs_at_once():
    async with front(who=caller(key=Limits(concurrent_requests=1))) as served:
        first = served.call()
        served.engine.step(3)
        await first.until(lambda call: len(call.events) >= 3)
        second = served.call()
        await second.until(lambda call: len(call.events) >= 3)
        served.engine.finish()
        await asyncio.gather(first.done(), second.done())
        assert first.body == second.body


async def test_a_second_caller_gets_the_running_stream_from_its_beginning():
    async with front() as served:
        first = served.call()
        served.engine.step(3)
        await first.until(lambda call: len(call.events) >= 3)
        second = served.call()
        await second.until(lambda call: len(call.events) >= 3)
        served.engine.finish()
        await asyncio.gather(first.done(), second.done())
        assert first.body == second.body
        assert first.body.endswith(b"data: [DONE]\n\n")
        assert second.headers["idempotent-replayed"] == "true"
        assert second.headers["x-original-request-id"] == first.headers["x-request-id"]
        assert len(served.engine.requests) == 1


async def test_a_second_caller_gets_the_whole_answer_that_is_being_generated():
    async with front() as served:
        calls = [served.call(BODY) for _ in range(5)]
        served.engine.finish()
        await asyncio.gather(*(call.done() for call in calls))
        assert len({call.body for call in calls}) == 1
        assert calls[0].json()["choices"][0]["message"]["content"] == TEXT
        assert len(served.engine.requests) == 1


async def test_another_body_conflicts_with_the_running_answer():
    async with front() as served:
        first = served.call()
        other = await served.call({**STREAM, "max_tokens": 59}).done()
        assert (other.status, other.headers["x-should-retry"]) == (409, "false")
        served.engine.finish()
        assert (await first.done()).status == 200


async def test_a_disconnect_does_not_stop_what_another_caller_reads():
    async with front(idempotency_grace_s=0, resume_grace_s=0) as served:
        first, second = served.call(), served.call()
        served.engine.step(2)
        await second.until(lambda call: len(call.events) >= 2)
        await first.disconnect()
        served.engine.finish()
        await second.done()
        assert second.body.endswith(b"data: [DONE]\n\n")
        assert served.engine.closed_early == 0


async def test_after_the_last_reader_and_the_grace_the_generation_ends():
    async with front(idempotency_grace_s=0, resume_grace_s=0) as served:
        for body in (STREAM, BODY):
            served.engine.ended.clear()
            call = served.call(body, key=str(len(body)))
            await asyncio.sleep(0)
            while not served.engine.requests:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await call.disconnect()
            await served.engine.ended.wait()
        assert served.engine.closed_early == 2


async def test_a_retry_within_the_grace_continues_after_its_last_event():
    async with front(resume_grace_s=3600) as served:
        first = served.call()
        served.engine.step(3)
        await first.until(lambda call: len(call.events) >= 3)
        await first.disconnect()
        had = b"".join(each + b"\n\n" for each in first.events)
        rest = served.call(last_event_id=str(len(first.events)))
        whole = served.call()
        served.engine.finish()
        await asyncio.gather(rest.done(), whole.done())
        assert had + rest.body == whole.body
        assert served.engine.closed_early == 0
        assert len(served.engine.requests) == 1


async def test_an_event_that_was_not_sent_yet_is_refused():
    async with front() as served:
        first = served.call()
        served.engine.step(2)
        await first.until(lambda call: len(call.events) >= 2)
        early = await served.call(last_event_id="50").done()
        assert early.status == 400
        served.engine.finish()
        await first.done()


async def test_a_reader_that_takes_nothing_does_not_hold_the_others_up():
    async with front() as served:
        slow, fast = served.call(), served.call()
        slow.may_read.clear()
        served.engine.finish()
        await fast.done()
        assert fast.is_complete
        slow.may_read.set()
        assert (await slow.done()).body == fast.body


async def test_a_reader_too_slow_for_the_bound_is_cut_off_and_the_others_get_everything():
    async with front(large(6, 1_500_000)) as served:
        slow, fast = served.call(), served.call()
        slow.may_read.clear()
        served.engine.finish()
        await fast.done()
        assert fast.body.endswith(b"data: [DONE]\n\n")
        late = served.call()
        assert (await late.done()).status == 409
        slow.may_read.set()
        cut = await slow.done()
        assert LOST in cut.body.decode()
        assert cut.body.endswith(b"data: [DONE]\n\n")
        assert len(cut.body) < len(fast.body)


async def test_more_readers_than_the_limit_are_refused():
    async with front() as served:
        readers = []
        served.engine.step()
        for _ in range(32):
            readers.append(served.call())
            await readers[-1].until(lambda call: call.events)
        one_more = await served.call().done()
        assert (one_more.status, one_more.json()["error"]["code"]) == (
            429,
            "concurrency_limit_exceeded",
        )
        served.engine.finish()
        await asyncio.gather(*(reader.done() for reader in readers))


async def test_comments_reach_those_who_wait_and_are_not_replayed():
    async with front(keep_alive_s=0.05) as served:
        first, second = served.call(), served.call()
        await asyncio.gather(
            *(call.until(lambda call: b": keep-alive" in call.body) for call in (first, second))
        )
        served.engine.finish()
        await asyncio.gather(first.done(), second.done())
        replayed = await served.call().done()
        assert b": keep-alive" not in replayed.body
        assert replayed.events == first.events == second.events


async def test_every_reader_of_a_failing_stream_gets_the_error():
    async with front(stall_timeout_s=0.05) as served:
        first, second = served.call(BODY), served.call(BODY)
        await asyncio.gather(first.done(), second.done())
        assert first.status == second.status == 504
        assert first.body == second.body


async def test_a_server_that_stops_ends_every_reader_s_stream_with_the_error():
    """It cancels the requests that still run when its time to drain is over."""
    async with front() as served:
        calls = [served.call(), served.call()]
        served.engine.step(2)
        for call in calls:
            await call.until(lambda call: len(call.events) >= 2)
        for call in calls:
            call.task.cancel()
        for call in calls:
            await call.done()
            assert b"The server is shutting down." in call.body
            assert call.body.endswith(b"data: [DONE]\n\n")
        assert served.engine.closed_early == 1


async def test_a_thousand_requests_with_one_key_cost_one_generation():
    async with front() as served:
        calls = [served.call(BODY) for _ in range(1_000)]
        served.engine.finish()
        await asyncio.gather(*(call.done() for call in calls))
        assert {call.status for call in calls} <= {200, 429}  # 32 may read at once
        assert len({call.body for call in calls if call.status == 200}) == 1
        assert len(served.engine.requests) == 1
