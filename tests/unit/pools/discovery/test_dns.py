"""dns: which lookups change the endpoints, and for how long failures do not."""

from __future__ import annotations

import socket

import pytest

from proxy.pools.discovery.dns import (
    EMPTY_S,
    EVERY_S,
    FAILED_S,
    DnsName,
)
from proxy.pools.discovery.source_url import parse
from tests.doubles.watched_source import emitted, watched

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
