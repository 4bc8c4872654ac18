"""Idempotency keys at one proxy and at two with Redis; a real engine counts what it generates."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
import openai
import pytest

from proxy.api.http.idempotency import LOST
from tests.fixtures.redis_server import RedisServer, needs_redis, running
from tests.fixtures.running import Start
from tests.fixtures.stack import HANG_S, PLAIN, Stack, eventually

MODEL = "steady"
TOKENS = 12  # of each answer
AT_ONCE = 16
TRIES = 3  # that are cut
PATIENT = {  # a slow machine's retry must come within the grace
    "IDEMPOTENCY_GRACE_S": 3600,
    "RESUME_GRACE_S": 3600,
}
# A name of their own, which a front reports: answers of callers without one are not kept.
NAME = {"x-client-name": "keyed"}
NAMED = {
    "CLIENT_NAME_HEADER": "x-client-name",
    "TRUSTED_FRONTS": "127.0.0.1",
    "PUBLIC_METRICS": "true",
}
_HELD = re.compile(r"^proxy_idempotent_held_bytes(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class Reading:
    """What one caller has received of the answer to its key."""

    def __init__(self) -> None:
        self.data = b""

    @property
    def last_event(self) -> int:
        complete = self.data[: self.data.rfind(b"\n\n") + 2]
        numbers = re.findall(rb"^id: (\d+)$", complete, re.MULTILINE)
        return int(numbers[-1]) if numbers else 0

    def cut(self) -> None:
        """Forgets the event of which only a part has come."""
        self.data = self.data[: self.data.rfind(b"\n\n") + 2] if b"\n\n" in self.data else b""


class KeyedCallers:
    """answers: the complete answers to each key."""

    def __init__(self, urls: Sequence[str], seed: int) -> None:
        """urls: of the proxies; each request goes to any of them."""
        self.answers: dict[str, list[bytes]] = {}
        self.cuts = self.requests = 0
        self._urls = [f"{url}/v1/chat/completions" for url in urls]
        self._random = random.Random(seed)
        self._client = httpx.AsyncClient(
            timeout=HANG_S, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def ask_all(self, keys: list[str]) -> None:
        left = iter(keys)

        async def caller() -> None:
            for key in left:
                streams = self._random.random() < 0.7
                readers = self._random.randint(1, 3)
                await asyncio.gather(*(self._ask(key, streams) for _ in range(readers)))
                await self._ask(key, streams)  # when it is kept

        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))

    async def _ask(self, key: str, streams: bool) -> None:
        """Tries until the answer is complete; the first tries are cut at a random place."""
        reading, cuts = Reading(), self._random.randint(0, TRIES)
        while not await self._try(key, streams, reading, has_end=not cuts):
            cuts = max(cuts - 1, 0)
        self.answers.setdefault(key, []).append(reading.data)

    async def _try(self, key: str, streams: bool, reading: Reading, *, has_end: bool) -> bool:
        headers = {**NAME, "idempotency-key": key}
        if streams and reading.last_event and self._random.random() < 0.8:
            reading.cut()
            headers["last-event-id"] = str(reading.last_event)
        else:
            reading.data = b""
        most = None if has_end else self._random.randint(0, 40 * TOKENS)
        body = asked(key, streams)
        self.requests += 1
        try:
            url = self._random.choice(self._urls)
            async with self._client.stream("POST", url, json=body, headers=headers) as response:
                if response.status_code == 429:  # too many readers: not in these loads
                    raise AssertionError(await response.aread())
                assert response.status_code == 200, await response.aread()
                return await self._read(response, reading, most)
        except httpx.TransportError:
            return False

    async def _read(self, response: httpx.Response, reading: Reading, most: int | None) -> bool:
        async for data in response.aiter_raw():
            reading.data += data
            if most is not None and len(reading.data) > most:
                self.cuts += 1
                return False
        return most is None or len(reading.data) > 0


def asked(key: str, streams: bool) -> dict[str, object]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"Hello, {key}!"}],
        "max_tokens": TOKENS,
        "stream": streams,
    }


@asynccontextmanager
async def proxies(
    start: Start, triton: Stack, count: int, **settings: object
) -> AsyncIterator[list[Stack]]:
    target = f"grpc://127.0.0.1:{triton.triton_grpc_port}"
    found = [
        start("proxy", "--triton", target, **{**PATIENT, **NAMED, **settings}) for _ in range(count)
    ]
    for proxy in found:
        await asyncio.to_thread(proxy.wait_ready)
    try:
        yield found
    finally:
        for proxy in found:
            await asyncio.to_thread(proxy.stop)


def held_bytes(proxy: Stack) -> float:
    response = PLAIN.get(f"{proxy.url}/metrics")
    found = _HELD.search(response.text)
    assert found, (response.status_code, response.text)
    return float(found[1])


def outcomes(proxy: Stack) -> list[str]:
    text = PLAIN.get(f"{proxy.url}/metrics").text
    return [line for line in text.splitlines() if line.startswith("proxy_idempotent_requests")]


async def assert_one_generation_a_key(
    start: Start, triton: Stack, keys: int, count: int = 1, *, growth_bytes: int, **settings: object
) -> None:
    """Twice as many keys, in two rounds: the memory of the second must not stay.

    count: of proxies.
    """
    async with proxies(start, triton, count, **settings) as running:
        before = triton.begun(MODEL)
        callers = KeyedCallers([proxy.url for proxy in running], seed=keys)
        try:
            used = []
            for number in range(2):
                await callers.ask_all([f"{number}-{key}" for key in range(keys)])
                await asyncio.to_thread(until_nothing_is_held, running)
                used.append(sum(proxy.memory_bytes() for proxy in running))
        finally:
            await callers.close()
        await asyncio.to_thread(triton.settled_engine, MODEL)
        assert callers.cuts > keys
        assert callers.requests > 5 * keys
        counted = [outcomes(proxy) for proxy in running]
        generations = triton.begun(MODEL) - before
        assert generations == 2 * keys, (generations, counted)
        assert not [line for lines in counted for line in lines if "unavailable" in line]
        assert len(callers.answers) == 2 * keys
        for key, answers in callers.answers.items():
            assert len(answers) >= 2
            assert len(set(answers)) == 1, (key, answers)
            assert answers[0].endswith((b"data: [DONE]\n\n", b"}"))
        assert used[1] - used[0] < growth_bytes, used


def until_nothing_is_held(proxies: Sequence[Stack]) -> None:
    for proxy in proxies:
        eventually(lambda: held_bytes(proxy) == 0, 60, "no answer is held in memory")  # noqa: B023


MB = 1_000_000
PATH = "/v1/chat/completions"


def test_one_generation_for_each_key_however_often_clients_disconnect(start, scripted_stack):
    asyncio.run(assert_one_generation_a_key(start, scripted_stack, 10, growth_bytes=40 * MB))


@needs_redis
def test_the_same_with_records_in_redis(start, scripted_stack, tmp_path):
    with running(tmp_path) as redis:
        settings = {"LEDGER_URL": redis.url, "LEDGER_TIMEOUT_MS": 30_000, "growth_bytes": 40 * MB}
        asyncio.run(assert_one_generation_a_key(start, scripted_stack, 10, count=2, **settings))


@needs_redis
def test_the_claims_of_a_killed_proxy_are_taken_over(start, scripted_stack, tmp_path):
    async def run(redis: RedisServer) -> None:
        settings = {"LEDGER_URL": redis.url, "LEDGER_TIMEOUT_MS": 30_000}
        async with proxies(start, scripted_stack, 2, **settings) as (victim, other):
            url = f"{other.url}{PATH}"
            body = {**asked("killed", True), "max_tokens": 2_000}
            before = scripted_stack.begun(MODEL)
            async with httpx.AsyncClient(timeout=HANG_S, verify=False) as client:
                key = {**NAME, "idempotency-key": "killed"}
                async with client.stream(
                    "POST", f"{victim.url}{PATH}", json=body, headers=key
                ) as response:
                    lines = response.aiter_lines()  # the stream ends with its iterator
                    await anext(lines)
                    joined = [asyncio.create_task(join(url, body, key)) for _ in range(8)]
                    await asyncio.to_thread(eventually, lambda: joined_at(other) == 8, 30, "joined")
                    await asyncio.to_thread(victim.stop, signal.SIGKILL)
                    outcomes = await asyncio.gather(*joined)
                assert set(outcomes) <= {"lost", 503}
                last = {**key, "last-event-id": "1"}
                assert (await client.post(url, json=body, headers=last)).status_code == 410
                again = await client.post(url, json=body, headers=key)
                assert again.status_code == 200
                assert again.text.endswith("data: [DONE]\n\n")
            await asyncio.to_thread(scripted_stack.settled_engine, MODEL)
            assert scripted_stack.begun(MODEL) - before == 2

    with running(tmp_path) as redis:
        asyncio.run(run(redis))


def joined_at(proxy: Stack) -> float:
    """Requests that read another one's answer, so far."""
    counts = [line for line in outcomes(proxy) if 'outcome="joined"' in line and "_total" in line]
    return sum(float(line.rpartition(" ")[2]) for line in counts)


async def join(url: str, body: dict, key: dict[str, str]) -> int | str:
    """The status, or that the stream ended with the error of a lost answer."""
    async with httpx.AsyncClient(timeout=HANG_S, verify=False) as client:
        response = await client.post(url, json=body, headers=key)
        *_, error, end, rest = ["", "", *response.text.split("\n\n")]
        has_error = LOST in error and (end, rest) == ("data: [DONE]", "")
        return "lost" if has_error else response.status_code


@pytest.fixture(scope="module")
def named(start, scripted_stack: Stack) -> Stack:
    """A proxy that takes the callers' names from a header."""
    target = f"grpc://127.0.0.1:{scripted_stack.triton_grpc_port}"
    proxy = start("proxy", "--triton", target, **NAMED)
    proxy.wait_ready()
    return proxy


@pytest.mark.parametrize("stream", [False, True])
def test_openais_sdk_retries_with_the_key_and_notices_nothing(
    named: Stack, scripted_stack: Stack, stream: bool
):
    """The connection breaks after the request was sent: the SDK sends it again by itself."""

    class BreaksOnce(httpx.HTTPTransport):
        tries = 0

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = super().handle_request(request)
            BreaksOnce.tries += 1
            if BreaksOnce.tries == 1:
                response.read()
                raise httpx.ReadError("broken", request=request)
            return response

    before = scripted_stack.begun(MODEL)
    with openai.OpenAI(
        base_url=f"{named.url}/v1",
        api_key="none",
        max_retries=2,
        default_headers=NAME,
        http_client=httpx.Client(transport=BreaksOnce(), timeout=HANG_S),
    ) as client:
        key = {"Idempotency-Key": f"sdk-{stream}", "Authorization": openai.Omit()}
        answer = client.chat.completions.create(
            **{**asked("sdk", stream), "stream": stream}, extra_headers=key
        )
        if stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in answer)
        else:
            text = answer.choices[0].message.content
    assert BreaksOnce.tries == 2
    assert len(text.split()) >= TOKENS / 3
    assert scripted_stack.begun(MODEL) - before == 1
