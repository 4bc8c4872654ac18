"""body: BodyReader's bounds over real connections, and its parsing in a real sandbox."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop
from starlette.requests import ClientDisconnect, Request

from proxy.access.process_sandbox import ProcessSandbox
from proxy.api import errors
from proxy.api.http.body_reader import (
    ArrivingBody,
    BodyLimits,
    BodyReader,
    BytesInFlight,
    converted,
)
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.domain.errors import ErrorCode, InvalidRequest, RateLimited, RequestError
from proxy.domain.sandbox import TooCostly
from tests.doubles.sandbox import InProcess
from tests.fixtures.own_server import served

HI = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
LARGE = 60_000
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (2 * LARGE)


def application(reader: BodyReader):
    async def app(scope, receive, send) -> None:
        with suppress(ClientDisconnect):
            try:
                await reader.read(Request(scope, receive), ChatCompletionBody)
            except RequestError as error:
                await errors.response_of(error, scope["path"])(scope, receive, send)

    return app


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  (nothing signals a byte that has arrived)
        await asyncio.sleep(0.01)


def test_a_stalled_body_makes_room_for_others_and_clients_that_vanish_leave_nothing():
    flight = BytesInFlight(LARGE * 3 // 2)
    reader = BodyReader(BodyLimits(), InProcess(), flight)

    async def talk() -> None:
        async with served(application(reader)) as address:
            first, sending = await asyncio.open_connection(*address)
            sending.write(HEAD + b"x" * LARGE)
            await until(lambda: flight.bytes == LARGE)
            _, other = await asyncio.open_connection(*address)
            other.write(HEAD + b"x" * LARGE)
            head = await first.readuntil(b"\r\n\r\n")
            assert b" 429 " in head
            assert b"retry-after: 5" in head
            await until(lambda: flight.bytes == LARGE)
            other.close()
            await until(lambda: flight.bytes == 0)
            sending.close()

    uvloop.run(asyncio.wait_for(talk(), 20))


async def parsed_by(sandbox, data: bytes, limits: BodyLimits | None = None):
    reader = BodyReader(limits or BodyLimits(), sandbox, BytesInFlight(10**9))
    return await reader.parse(data, ChatCompletionBody, "caller")


def test_a_large_honest_body_comes_out_of_the_sandbox_as_it_went_in():
    given = {**HI, "messages": HI["messages"] * 1000, "chat_template_kwargs": {"a": [1, None, "é"]}}
    data = json.dumps(given).encode()
    body = uvloop.run(parsed_by(ProcessSandbox(), data))
    assert body == ChatCompletionBody.model_validate_json(data)


@pytest.mark.parametrize(
    ("field", "code", "param"),
    [
        ({"nope": 1}, "unsupported_parameter", "nope"),
        ({"temperature": 9}, "invalid_parameter", "temperature"),
        ({"documents": [{}] * 30_000}, "invalid_json", None),
    ],
)
def test_a_refusal_comes_out_of_the_sandbox_too(field, code, param):
    data = json.dumps({**HI, "messages": HI["messages"] * 1000, **field}).encode()
    with pytest.raises(RequestError) as caught:
        uvloop.run(parsed_by(ProcessSandbox(), data))
    assert (caught.value.code, caught.value.param) == (code, param)


def test_a_body_that_even_the_sandbox_gives_up_on_is_the_callers_fault():
    class Exhausted:
        async def run(self, *_: object, **__: object) -> None:
            raise TooCostly("it takes more than 2 s")

    with pytest.raises(InvalidRequest, match="takes more than 2 s"):
        uvloop.run(parsed_by(Exhausted(), json.dumps({**HI, "user": "x" * 300_000}).encode()))


def test_a_small_body_needs_no_sandbox():
    sandbox = InProcess()
    uvloop.run(parsed_by(sandbox, json.dumps(HI).encode()))
    assert sandbox.callers == []


@pytest.mark.parametrize("count", [1, 1_000])
def test_what_a_large_body_becomes_is_made_in_a_thread(count):
    data = json.dumps({**HI, "messages": HI["messages"] * count}).encode()

    async def maker() -> int:
        body = await parsed_by(InProcess(), data)
        thread = await converted(lambda: (body.to_domain("caller"), threading.get_ident())[1])
        assert await converted(sorted, [2, 1], reverse=True) == [2, 1]
        return thread

    assert (uvloop.run(maker()) == threading.get_ident()) is (count == 1)


def test_a_small_message_behind_a_large_one_needs_no_thread():
    async def makers() -> list[int]:
        reader, found = BodyReader(BodyLimits(), InProcess(), BytesInFlight(10**9)), []
        for count in (1_000, 1):
            data = json.dumps({**HI, "messages": HI["messages"] * count}).encode()
            with reader.held(data):
                await reader.parse(data, ChatCompletionBody, "caller")
            found.append(await converted(threading.get_ident))
        return found

    large, small = uvloop.run(makers())
    assert (large == threading.get_ident(), small == threading.get_ident()) == (False, True)


def test_a_complete_body_is_not_cut_off():
    flight, cut = BytesInFlight(10), []
    first, second = (ArrivingBody(flight, lambda at=at: cut.append(at)) for at in range(2))
    first.add(6)
    first.complete()
    with pytest.raises(RateLimited) as refused:
        second.add(6)
    assert refused.value.code is ErrorCode.QUEUE_FULL
    assert (cut, flight.bytes) == ([], 6)


def test_a_sockets_message_has_its_share_of_the_bytes_in_flight_until_it_is_parsed():
    flight, cut = BytesInFlight(100), []
    reader = BodyReader(BodyLimits(), InProcess(), flight)
    arriving = ArrivingBody(flight, lambda: cut.append(1))
    arriving.add(40)
    with reader.held(b"x" * 60):
        assert (flight.bytes, cut) == (100, [])
        with reader.held(b"x" * 40):
            assert (flight.bytes, cut) == (100, [1])
            with pytest.raises(RateLimited), reader.held(b"x"):
                pass
    assert flight.bytes == 0
