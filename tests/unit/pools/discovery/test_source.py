"""What all sources emit and log, what a watched file does, and which lookups change endpoints."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.dns import (
    EMPTY_S,
    EVERY_S,
    FAILED_S,
    DnsName,
)
from proxy.pools.discovery.source import (
    MOST_BYTES,
    MOST_ENDPOINTS,
    MOST_REASONS,
    GrowingPause,
    Source,
    WatchedFile,
)
from proxy.pools.discovery.source_url import parse
from tests.doubles.watched_source import emitted, until, watched

ONE, TWO = EndpointAddress("one:8001"), EndpointAddress("two:8001", 8012)


class Scripted(Source):
    """Reads what it is given: endpoints, or why they cannot be read. Then nothing happens."""

    def __init__(self, *script: list[EndpointAddress] | str) -> None:
        super().__init__(text="dns+grpc://x:1", is_tls=False)
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


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "endpoints"


def replace(path: Path, content: bytes) -> None:
    """At once: a file that is truncated first may be read in between."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.rename(path)


def file(path: Path) -> WatchedFile:
    found = parse(f"file+grpc://{path}")
    assert isinstance(found, WatchedFile)
    found.pause = GrowingPause(0.01, 0.01)
    return found


@pytest.mark.anyio
async def test_lines_comments_and_changes(path):
    path.write_text("# Tritons\n\none:8001\n two:8001?metrics=8012  # the second\r\n")
    async with watched(file(path)) as watching:
        two = EndpointAddress("two:8001", 8012)
        assert await watching.endpoints() == {EndpointAddress("one:8001"), two}
        path.write_text("six:8001\n")
        assert await watching.addresses() == ["six:8001"]
        path.write_text("ten:8001\n")  # as long as before
        assert await watching.addresses() == ["ten:8001"]
        path.write_text("")
        assert await watching.addresses() == []


@pytest.mark.anyio
async def test_a_file_that_does_not_exist_yet(path):
    with capture_logs() as logs:
        async with watched(file(path)) as watching:
            coming = watching.read_ahead()
            await until(lambda: len(logs) >= 1)
            replace(path, b"one:8001")
            assert await coming == {EndpointAddress("one:8001")}
    assert logs[0]["reason"] == f"{path}: No such file or directory"
    assert [each["log_level"] for each in logs] == ["warning", "info"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"one:8001\nwrong\n", "line 2: 'wrong' has no port"),
        (b"grpc://one:8001\n", "line 1: "),
        (b"\n\n\xff\n", "line 3: it is not UTF-8"),
        (b"#" * (MOST_BYTES + 1), "has more than 1,000,000 bytes"),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.anyio
async def test_a_wrong_file_keeps_the_endpoints(path, content, reason):
    path.write_text("one:8001\n")
    with capture_logs() as logs:
        async with watched(file(path)) as watching:
            await watching.endpoints()
            coming = watching.read_ahead()
            replace(path, content)
            await until(lambda: len(logs) >= 1)
            assert not coming.done()
            replace(path, b"two:8001\n")
            assert await coming == {EndpointAddress("two:8001")}
    assert str(path) in logs[0]["reason"]
    assert reason in logs[0]["reason"]


@pytest.mark.anyio
async def test_a_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    with capture_logs() as logs:
        async with watched(file(path)) as watching:
            watching.read_ahead()
            await until(lambda: len(logs) >= 1)
    assert "is not a regular file" in logs[0]["reason"]


AWAY = socket.gaierror(socket.EAI_AGAIN, "no name server answers")


class Names:
    """Answers lookups in turn, the last answer for ever."""

    def __init__(self, *answers: list[str] | OSError) -> None:
        self._answers = list(answers)
        self.lookups = 0

    async def resolve(self, name: str) -> list[str]:
        assert name == "triton"
        self.lookups += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


def sets_within(seconds: float, names: Names, url: str = "dns+grpc://triton:8001"):
    """(time, addresses) of each set, and the log."""
    source = parse(url)
    assert isinstance(source, DnsName)
    source.resolve = names.resolve
    found, logs = emitted(source, seconds)
    return [(at, sorted(each.address for each in endpoints)) for at, endpoints in found], logs


def test_addresses_of_both_families_are_endpoints_and_changes_are_emitted():
    names = Names(["10.0.0.1", "fd00::1"], ["fd00::1", "10.0.0.1"], ["10.0.0.2"])
    found, logs = sets_within(3 * EVERY_S, names)
    first, second = found
    assert first == (0.0, ["10.0.0.1:8001", "[fd00::1]:8001"])
    assert second == (pytest.approx(2 * EVERY_S), ["10.0.0.2:8001"])
    assert logs == []


def test_a_name_without_addresses_keeps_the_last_ones_for_a_minute():
    found, logs = sets_within(10 * EMPTY_S, Names(["10.0.0.1"], []))
    (_, first), (at, second) = found
    assert (first, second) == (["10.0.0.1:8001"], [])
    assert at == pytest.approx(EMPTY_S, abs=EVERY_S)
    assert [each["reason"] for each in logs] == ["triton has no addresses"]


def test_lookups_that_fail_keep_the_last_addresses_for_an_hour():
    names = Names(["10.0.0.1"], AWAY)
    found, logs = sets_within(FAILED_S - 20, names)
    assert found == [(0.0, ["10.0.0.1:8001"])]
    assert [each["reason"] for each in logs] == ["triton: no name server answers"]
    assert names.lookups < FAILED_S / EVERY_S, "pauses grow"
    found, _ = sets_within(FAILED_S + 20, Names(["10.0.0.1"], AWAY))
    assert [addresses for _, addresses in found] == [["10.0.0.1:8001"], []]


@pytest.mark.anyio
async def test_the_systems_resolver():
    async with watched(parse("dns+grpc://localhost:8001?metrics=8012")) as watching:
        found = await watching.endpoints()
    assert {each.address for each in found} & {"127.0.0.1:8001", "[::1]:8001"}
    assert {each.metrics_port for each in found} == {8012}
