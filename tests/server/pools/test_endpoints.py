"""Three tritonservers behind one name, and a fourth: spread, join, death and drain under load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.pool_load import Callers, until
from tests.fixtures.stack import Stack, halted
from tests.server.pools.conftest import address, are_ready, listed

pytestmark = pytest.mark.xdist_group("pools")  # one worker has the three tritonservers
STREAMS, TOLERANCE = 60, 0.1
LONG_ENOUGH = 40  # tokens, so that all of them run at once
FOREVER, LONG = 100_000, 100  # tokens
STREAMS_KEPT = 15
TRIES = 4  # where a machine is so busy that the figures of an endpoint are old, it gets fewer
JOIN_S = 5.0  # until a new endpoint has its share


@dataclass(frozen=True, slots=True)
class Cluster:
    """Three tritonservers behind a proxy, that reads their addresses from the file."""

    tritons: tuple[Stack, ...]
    proxy: Stack
    file: Path

    def name(self, *tritons: Stack) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text("\n".join(map(listed, tritons)))
        fresh.replace(self.file)

    def run(self, body: Callable[[Callers], Awaitable[None]]) -> None:
        async def with_callers() -> None:
            callers = Callers(self.proxy, "steady")
            async with callers.client:
                for one in self.tritons:
                    await callers.until_state(address(one), "ready")
                await body(callers)

                async def is_idle() -> bool:
                    return not any((await callers.streams()).values())

                await until(is_idle, "no stream is left")

        asyncio.run(with_callers())


@pytest.fixture(scope="module")
def cluster(tritons, proxy_of, tmp_path_factory) -> Cluster:
    file = tmp_path_factory.mktemp("endpoints") / "endpoints"
    file.write_text("\n".join(map(listed, tritons)))
    proxy = proxy_of(TRITON_URL=f"file+grpc://{file}", CONTINUE_AFTER_SILENCE_S=3600)
    return Cluster(tritons, proxy, file)


def is_even(counts: dict[str, int], endpoints: int) -> bool:
    even = sum(counts.values()) / endpoints
    return len(counts) == endpoints and all(
        abs(count - even) <= TOLERANCE * even for count in counts.values()
    )


def test_60_streams_are_spread_evenly_and_a_fourth_endpoint_has_its_share(cluster, new_triton):
    fourth = new_triton()
    are_ready(fourth)

    async def body(callers: Callers) -> None:
        for _ in range(TRIES):
            before = await callers.ended()
            answers = await asyncio.gather(*(callers.whole(LONG_ENOUGH) for _ in range(STREAMS)))
            assert {one.status_code for one in answers} == {200}
            counts = dict(await callers.ended() - before)
            if is_even(counts, 3):
                break
        assert is_even(counts, 3), counts

        kept = [asyncio.create_task(callers.stream(FOREVER)) for _ in range(STREAMS * 3 // 4)]
        await until(lambda: has_begun(callers, len(kept)), "streams have begun")
        cluster.name(*cluster.tritons, fourth)
        await callers.until_state(address(fourth), "ready")
        await asyncio.sleep(JOIN_S)
        more = [asyncio.create_task(callers.stream(FOREVER)) for _ in range(STREAMS // 4)]
        await until(lambda: has_begun(callers, STREAMS), "all streams have begun")
        streams = await callers.streams()
        assert is_even(streams, 4), streams
        cluster.name(*cluster.tritons)
        for task in (*kept, *more):
            task.cancel()
        await asyncio.wait((*kept, *more))
        await until(lambda: is_gone(callers, address(fourth)), "the fourth has left")

    cluster.run(body)


async def has_begun(callers: Callers, count: int) -> bool:
    return callers.began >= count


async def is_gone(callers: Callers, name: str) -> bool:
    return name not in await callers.endpoints()


def test_all_streams_survive_kill_9_and_those_that_had_begun_are_the_same_token_for_token(cluster):
    engines = {address(one): (one, one.engine_processes("steady")) for one in cluster.tritons}

    async def body(callers: Callers) -> None:
        before = await callers.continued()
        running = [asyncio.create_task(callers.stream(LONG)) for _ in range(STREAMS_KEPT)]
        await until(lambda: has_begun(callers, STREAMS_KEPT), "streams have begun")
        busiest, there = await busiest_of(callers)
        victim, processes = engines[busiest]
        with halted(processes):
            waiting = [asyncio.create_task(callers.whole(3)) for _ in range(12)]
            some_wait = await are_seen_to_wait(callers, victim, there)
            victim.tritonserver().kill()
        answers = await asyncio.gather(*waiting)
        assert [one.status_code for one in answers] == [200] * 12
        resent = [one for one in answers if "x-resends" in one.headers]
        assert resent or not some_wait
        assert {one.headers["x-resends"] for one in resent} <= {"1"}
        assert len({one.json()["choices"][0]["text"] for one in answers}) == 1
        streams = await asyncio.gather(*running)
        assert {streamed_text(one) for one in streams} == {streamed_text(streams[0])}
        assert await callers.continued() - before == there > 0
        assert "tritonserver died" in victim.log.read_text()
        ended = (await callers.ended())[address(victim)]

        async def serves_again() -> bool:
            """By requests: where it was ejected, one of them tries it."""
            await asyncio.gather(*(callers.whole(3) for _ in range(30)))
            return (await callers.ended())[address(victim)] > ended

        await until(serves_again, "the victim serves again")
        await callers.until_state(address(victim), "ready")

    cluster.run(body)


async def busiest_of(callers: Callers) -> tuple[str, int]:
    """The endpoint with most streams, and how many: on a busy machine the figures of another one
    may be old, and it gets fewer.
    """
    found = await callers.streams()
    return max(found.items(), key=lambda one: one[1])


async def are_seen_to_wait(callers: Callers, victim: Stack, more_than: int) -> bool:
    """For seconds only: then Triton notices that its engine stands still, and fails its streams."""
    for _ in range(20):
        if (await callers.streams())[address(victim)] >= more_than + 2:
            return True
        await asyncio.sleep(0.02)
    return False


def streamed_text(events: list[dict]) -> str:
    assert events[-1]["choices"][0]["finish_reason"] == "length", events[-1]
    return "".join(event["choices"][0]["text"] for event in events)


def test_a_drain_moves_running_streams_and_changes_none_of_them(cluster):
    async def body(callers: Callers) -> None:
        before = await callers.continued(cause="drained")
        running = [asyncio.create_task(callers.stream(LONG)) for _ in range(STREAMS_KEPT)]
        await until(lambda: has_begun(callers, STREAMS_KEPT), "streams have begun")
        drained, there = await busiest_of(callers)
        await callers.operate("endpoints/drain", address=drained)
        await callers.until_state(drained, "drained")
        assert not any(task.done() for task in running)
        streams = await asyncio.gather(*running)
        assert {streamed_text(one) for one in streams} == {streamed_text(streams[0])}
        assert await callers.continued(cause="drained") - before == there > 0
        await callers.operate("endpoints/undrain", address=drained)
        await callers.until_state(drained, "ready")

    cluster.run(body)


def test_drain_and_undrain_under_load_cost_nobody_an_answer(cluster):
    drained = address(cluster.tritons[1])

    async def body(callers: Callers) -> None:
        async with callers.busy(24, tokens=5) as answers:
            await until(lambda: has_answered(answers, 24), "all callers are at work")
            await callers.operate("endpoints/drain", address=drained)
            await callers.until_state(drained, "drained")
            ended, count = (await callers.ended())[drained], len(answers)
            await until(lambda: has_answered(answers, count + 48), "others serve")
            assert (await callers.ended())[drained] == ended
            await callers.operate("endpoints/undrain", address=drained)
            await callers.until_state(drained, "ready")

            async def serves() -> bool:
                return (await callers.ended())[drained] > ended

            await until(serves, "it serves again")
        assert {one.status_code for one in answers} == {200}
        assert {one.json()["usage"]["completion_tokens"] for one in answers} == {5}
        assert not any("x-resends" in one.headers for one in answers)

    cluster.run(body)


async def has_answered(answers: list, count: int) -> bool:
    return len(answers) >= count
