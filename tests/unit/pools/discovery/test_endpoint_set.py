"""endpoint_set, outage and growing_pause: what sources emit and log, and how long they pause."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_set import EndpointSet
from proxy.pools.discovery.outage import MOST_REASONS, GrowingPause, Outage
from proxy.pools.discovery.source_url import (
    MOST_ENDPOINTS,
    InvalidSource,
    parse,
)
from proxy.pools.discovery.sources import endpoint_source
from tests.doubles import clock

ONE, TWO = EndpointAddress("one:8001"), EndpointAddress("two:8001", 8012)


def test_only_changes_are_emitted():
    latest = EndpointSet("grpc://x")
    assert not latest.is_known
    assert latest.changed([]) == frozenset()
    assert latest.is_known
    assert latest.changed([]) is None
    assert latest.changed([TWO, ONE]) == {ONE, TWO}
    assert latest.changed([ONE, TWO, ONE]) is None
    assert latest.changed([ONE]) == {ONE}


def test_an_address_with_two_metrics_ports_is_one_endpoint():
    found = EndpointSet("grpc://x").changed([ONE, EndpointAddress("one:8001", 8012)])
    assert found == {EndpointAddress("one:8001", 8012)}


def test_the_first_thousand_are_kept_and_the_rest_is_logged_once():
    many = [EndpointAddress(f"h{number:05}:1") for number in range(MOST_ENDPOINTS + 5)]
    latest = EndpointSet("grpc://x")
    with capture_logs() as logs:
        assert latest.changed(reversed(many)) == set(many[:MOST_ENDPOINTS])
        assert latest.changed(many[1:]) == set(many[1 : MOST_ENDPOINTS + 1])
        assert len(logs) == 1
        latest.changed(many[:3])
        latest.changed(many)
    assert [(each["found"], each["kept"]) for each in logs] == [(1005, 1000)] * 2


def test_an_outage_is_logged_once_for_each_reason():
    outage = Outage("dns+grpc://x:1")
    with capture_logs() as logs:
        outage.ended()
        for number in range(100):
            outage.failed(f"reason {number % 20}")
        outage.ended()
        outage.ended()
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


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("grpc://h:8001", "StaticList"),
        ("dns+grpc://h:8001", "DnsName"),
        ("file+grpc:///etc/list", "WatchedFile"),
        ("etcd+grpc://h:2379/p", "EtcdPrefix"),
        ("k8s+grpc://n/s:8001?api=http://127.0.0.1:8001", "KubernetesService"),
    ],
)
def test_each_url_has_a_source(url, name):
    assert type(endpoint_source(parse(url))).__name__ == name


def test_a_service_of_kubernetes_needs_a_cluster():
    with pytest.raises(InvalidSource, match="KUBERNETES_SERVICE_HOST is not set"):
        endpoint_source(parse("k8s+grpc://n/s:8001"))


def test_a_static_list_is_emitted_once():
    async def run() -> None:
        sets = endpoint_source(parse("grpc://one:8001,grpc://two:8001?metrics=8012")).watch()
        assert await sets.__anext__() == {ONE, TWO}
        second = asyncio.ensure_future(sets.__anext__())
        await asyncio.wait([second], timeout=1000)
        assert not second.done()
        second.cancel()
        await asyncio.wait([second])
        await sets.aclose()

    clock.run(run())
