"""etcd: keys under a prefix of a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.etcd import WATCH_S, EtcdPrefix
from proxy.pools.discovery.source import GrowingPause
from proxy.pools.discovery.source_url import parse
from tests.doubles.watched_source import until, watched
from tests.fixtures.file_server import FileServer
from tests.fixtures.stack import free_port
from tests.unit.pools.discovery.etcd_server import EtcdServer, encoded, needs_etcd, running

pytestmark = pytest.mark.anyio


@pytest.fixture
def etcd(tmp_path) -> Iterator[EtcdServer]:
    with running(tmp_path) as server:
        yield server


def prefix(where: str | EtcdServer, *, watch_s: float = WATCH_S) -> EtcdPrefix:
    hosts = where if isinstance(where, str) else f"127.0.0.1:{where.port}"
    url = parse(f"etcd+grpc://{hosts}/triton/")
    return EtcdPrefix(url, pause=GrowingPause(0.02, 0.05), watch_s=watch_s)


@needs_etcd
async def test_endpoints_come_change_and_go(etcd):
    etcd.put("/triton/a", "10.0.0.1:8001")
    etcd.put("/triton", "10.9.9.9:8001")
    etcd.put("/triton0", "10.9.9.9:8001")
    async with watched(prefix(etcd)) as watching:
        assert await watching.endpoints() == {EndpointAddress("10.0.0.1:8001")}
        etcd.put("/triton/b", '{"address": "10.0.0.2:8001", "metrics_port": 8012}')
        both = {EndpointAddress("10.0.0.1:8001"), EndpointAddress("10.0.0.2:8001", 8012)}
        assert await watching.endpoints() == both
        etcd.put("/triton/a", "10.0.0.3:8001")
        assert await watching.addresses() == ["10.0.0.2:8001", "10.0.0.3:8001"]
        etcd.put("/triton0", "10.9.9.8:8001")
        etcd.put("/triton/a", "10.0.0.3:8001")
        etcd.delete("/triton/b")
        assert await watching.addresses() == ["10.0.0.3:8001"]


@needs_etcd
async def test_an_endpoint_goes_with_its_lease(etcd):
    etcd.put("/triton/a", "10.0.0.1:8001", lease=etcd.lease(1))
    etcd.put("/triton/b", "10.0.0.2:8001")
    async with watched(prefix(etcd)) as watching:
        assert await watching.addresses() == ["10.0.0.1:8001", "10.0.0.2:8001"]
        assert await watching.addresses() == ["10.0.0.2:8001"]


@needs_etcd
async def test_more_keys_than_a_page(etcd):
    for number in range(1, 1003):
        etcd.put(f"/triton/{number:04}", f"h{number:04}:8001")
    with capture_logs() as logs:
        async with watched(prefix(etcd)) as watching:
            assert await watching.addresses() == [f"h{n:04}:8001" for n in range(1, 1001)]
    (line,) = logs
    assert (line["found"], line["kept"]) == (1002, 1000)


@needs_etcd
async def test_the_endpoints_remain_while_etcd_is_down(etcd):
    etcd.put("/triton/a", "10.0.0.1:8001")
    with capture_logs() as logs:
        async with watched(prefix(etcd)) as watching:
            await watching.endpoints()
            coming = watching.read_ahead()
            etcd.kill()
            await until(lambda: bool(logs))
            await asyncio.to_thread(etcd.start)
            await until(lambda: any("again" in each["event"] for each in logs))
            assert not coming.done(), "the endpoints are the same"
            etcd.put("/triton/b", "10.0.0.2:8001")
            assert len(await coming) == 2
    assert {each["event"] for each in logs[:-1]} == {"endpoints cannot be found"}
    assert len({each["reason"] for each in logs[:-1]}) == len(logs) - 1, "no reason twice"


@needs_etcd
async def test_changes_during_an_outage_are_found_after_it(etcd):
    etcd.put("/triton/a", "10.0.0.1:8001")
    with capture_logs():
        async with watched(prefix(etcd)) as watching:
            await watching.endpoints()
            etcd.kill()
            await asyncio.to_thread(etcd.start)
            etcd.delete("/triton/a")
            revision = etcd.put("/triton/b", "10.0.0.2:8001")
            etcd.compact(revision)
            while (found := await watching.addresses()) != ["10.0.0.2:8001"]:
                assert found == [], "the moment between the two changes"


@needs_etcd
async def test_a_compacted_revision_is_no_failure(etcd):
    """The watch begins after changes that were compacted since the keys were read."""
    etcd.put("/triton/a", "10.0.0.1:8001")
    with capture_logs() as logs:
        async with watched(prefix(etcd)) as watching:
            await watching.endpoints()
            etcd.put("/triton/a", "10.0.0.2:8001")
            etcd.compact(etcd.put("/triton/b", "10.0.0.3:8001"))
            assert await watching.addresses() == ["10.0.0.2:8001", "10.0.0.3:8001"]
    assert logs == []


@needs_etcd
async def test_a_silent_watch_ends_and_the_keys_are_read_again(etcd):
    etcd.put("/triton/a", "10.0.0.1:8001")
    with capture_logs() as logs:
        async with watched(prefix(etcd, watch_s=0.05)) as watching:
            await watching.endpoints()
            coming = watching.read_ahead()
            await asyncio.wait([coming], timeout=0.3)
            etcd.put("/triton/a", "10.0.0.2:8001")
            assert await coming == {EndpointAddress("10.0.0.2:8001")}
    assert logs == []


@needs_etcd
async def test_a_host_that_is_down_is_passed_over(etcd):
    etcd.put("/triton/a", "10.0.0.1:8001")
    with capture_logs() as logs:
        hosts = f"127.0.0.1:{free_port()},127.0.0.1:{etcd.port}"
        async with watched(prefix(hosts)) as watching:
            assert await watching.addresses() == ["10.0.0.1:8001"]
    assert [each["event"] for each in logs] == [
        "endpoints cannot be found",
        "endpoints can be found again",
    ]


@needs_etcd
async def test_a_wrong_value_is_logged_once_and_leaves_the_others(etcd):
    with capture_logs() as logs:
        async with watched(prefix(etcd)) as watching:
            assert await watching.addresses() == []
            etcd.put("/triton/wrong", "no port")
            etcd.put("/triton/wrong", "no port")
            etcd.put("/triton/a", "10.0.0.1:8001")
            assert await watching.addresses() == ["10.0.0.1:8001"]
            etcd.put("/triton/wrong", "10.0.0.2:8001")
            assert len(await watching.endpoints()) == 2
    (line,) = logs
    assert (line["event"], line["key"]) == ("a key is no endpoint", "/triton/wrong")
    assert "write host:port" in line["reason"]


@needs_etcd
async def test_a_user_logs_in(etcd):
    etcd.put("/triton/a", "10.0.0.1:8001")
    etcd.call("/v3/auth/user/add", name="root", password="p@ss")
    etcd.call("/v3/auth/role/add", name="root")
    etcd.call("/v3/auth/user/grant", user="root", role="root")
    etcd.call("/v3/auth/enable")
    with capture_logs() as logs:
        async with watched(prefix(f"root:p%40ss@127.0.0.1:{etcd.port}", watch_s=0.05)) as watching:
            assert await watching.addresses() == ["10.0.0.1:8001"]
            coming = watching.read_ahead()
            await asyncio.wait([coming], timeout=0.3)
            token = etcd.call("/v3/auth/authenticate", name="root", password="p@ss")["token"]
            pair = {"key": encoded("/triton/a"), "value": encoded("10.0.0.2:8001")}
            etcd.call("/v3/kv/put", token, **pair)
            assert await coming == {EndpointAddress("10.0.0.2:8001")}
    assert logs == []


@needs_etcd
async def test_a_wrong_password_is_logged_without_it(etcd):
    etcd.call("/v3/auth/user/add", name="root", password="right")
    etcd.call("/v3/auth/role/add", name="root")
    etcd.call("/v3/auth/user/grant", user="root", role="root")
    etcd.call("/v3/auth/enable")
    with capture_logs() as logs:
        async with watched(prefix(f"root:guess@127.0.0.1:{etcd.port}")) as watching:
            watching.read_ahead()
            await until(lambda: bool(logs))
    assert "authenticat" in logs[0]["reason"]
    assert "guess" not in str(logs)


async def test_a_server_that_is_no_etcd():
    with FileServer({}) as server, capture_logs() as logs:
        async with watched(prefix(server.url("").removeprefix("http://"))) as watching:
            watching.read_ahead()
            await until(lambda: bool(logs))
    assert "/v3/kv/range: status 501" in logs[0]["reason"]
