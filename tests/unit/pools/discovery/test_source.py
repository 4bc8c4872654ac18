"""source: what all sources emit and log, and how long they pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.source import MOST_REASONS, GrowingPause, Source, StaticList
from proxy.pools.discovery.source_url import MOST_ENDPOINTS
from tests.doubles import clock
from tests.doubles.watched_source import emitted

ONE, TWO = EndpointAddress("one:8001"), EndpointAddress("two:8001", 8012)


class Scripted(Source):
    """Reads what it is given: endpoints, or why they cannot be read. Then nothing happens."""

    def __init__(self, *script: list[EndpointAddress] | str) -> None:
        super().__init__("dns+grpc://x:1")
        self._script = list(script)

    async def sets(self) -> AsyncGenerator[list[EndpointAddress], None]:
        while self._script:
            found = self._script.pop(0)
            if isinstance(found, str):
                raise ValueError(found)
            yield found
        await asyncio.Event().wait()


def sets(source: Source) -> tuple[list[set[EndpointAddress]], list[dict]]:
    found, logs = emitted(source)
    return [endpoints for _, endpoints in found], logs


def test_only_changes_are_emitted():
    found, logs = sets(Scripted([], [], [TWO, ONE], [ONE, TWO, ONE], [ONE]))
    assert (found, logs) == ([set(), {ONE, TWO}, {ONE}], [])


def test_an_address_with_two_metrics_ports_is_one_endpoint():
    found, _ = sets(StaticList("grpc://x", frozenset({ONE, EndpointAddress("one:8001", 8012)})))
    assert found == [{EndpointAddress("one:8001", 8012)}]


def test_the_first_thousand_are_kept_and_the_rest_is_logged_once():
    many = [EndpointAddress(f"h{number:05}:1") for number in range(MOST_ENDPOINTS + 5)]
    found, logs = sets(Scripted(many[::-1], many[1:], many[:3], many))
    assert found[:2] == [set(many[:MOST_ENDPOINTS]), set(many[1 : MOST_ENDPOINTS + 1])]
    assert [(each["found"], each["kept"]) for each in logs] == [(1005, 1000)] * 2


def test_an_outage_keeps_the_endpoints_and_is_logged_once_for_each_reason():
    reasons = [f"reason {number % 20}" for number in range(100)]
    found, logs = sets(Scripted([ONE], *reasons, [ONE], [ONE]))
    assert found == [{ONE}]
    assert [each["log_level"] for each in logs] == ["warning"] * MOST_REASONS + ["info"]
    assert all(each["source"] == "dns+grpc://x:1" for each in logs)


def test_pauses_grow_and_begin_anew_after_quiet():
    async def run() -> tuple[list[float], float]:
        now = asyncio.get_running_loop().time
        pause, lengths = GrowingPause(0.1, 10.0), []
        for _ in range(20):
            began = now()
            await pause.wait()
            lengths.append(now() - began)
        await asyncio.sleep(20.1)
        began = now()
        await pause.wait()
        return lengths, now() - began

    lengths, after_quiet = clock.run(run())
    for number, length in enumerate(lengths):
        longest = min(0.1 * 2**number, 10.0)
        assert longest / 2 - 1e-6 <= length <= longest + 1e-6
    assert len(set(lengths)) == len(lengths), "jittered"
    assert after_quiet < 0.11
