"""etcd: keys under a prefix of a real etcd."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.etcd import WATCH_S, EtcdPrefix, end_of_prefix, endpoint_in
from proxy.pools.discovery.source import GrowingPause
from proxy.pools.discovery.source_url import parse
from tests.doubles.watched_source import until, watched
from tests.fixtures.stack import PLAIN, free_port

PROGRAM = shutil.which("etcd")
needs_etcd = pytest.mark.skipif(PROGRAM is None, reason="needs etcd: apt-get install etcd-server")


class EtcdServer:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        own, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{free_port()}"
        self._url = own
        self._command = [
            *(str(PROGRAM), "--data-dir", str(folder / "data")),
            *("--listen-client-urls", own, "--advertise-client-urls", own),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}", "--unsafe-no-fsync", "--log-level", "fatal"),
        ]
        self.start()

    def start(self) -> None:
        """With the data of the start before."""
        self._process = subprocess.Popen(self._command)
        while True:  # pytest's timeout ends what never comes
            with suppress(httpx.TransportError, ValueError):
                if PLAIN.get(f"{self._url}/health").json()["health"] == "true":
                    return
            time.sleep(0.02)

    def kill(self) -> None:
        """As kill -9."""
        self._process.kill()
        self._process.wait()

    def call(self, path: str, token: str | None = None, **body: Any) -> dict[str, Any]:
        headers = {} if token is None else {"Authorization": token}
        answer = PLAIN.post(self._url + path, json=body, headers=headers)
        return answer.raise_for_status().json()

    def put(self, key: str, value: str) -> int:
        """The revision."""
        done = self.call("/v3/kv/put", key=encoded(key), value=encoded(value))
        return int(done["header"]["revision"])


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def etcd(tmp_path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path)
    yield server
    server.kill()


def prefix(where: str | EtcdServer, *, watch_s: float = WATCH_S) -> EtcdPrefix:
    hosts = where if isinstance(where, str) else f"127.0.0.1:{where.port}"
    source = parse(f"etcd+grpc://{hosts}/triton/")
    assert isinstance(source, EtcdPrefix)
    source.pause, source.watch_s = GrowingPause(0.02, 0.05), watch_s
    return source


@pytest.mark.anyio
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
        etcd.call("/v3/kv/deleterange", key=encoded("/triton/b"))
        assert await watching.addresses() == ["10.0.0.3:8001"]


@pytest.mark.anyio
@needs_etcd
async def test_more_keys_than_a_page(etcd):
    for number in range(1, 1003):
        etcd.put(f"/triton/{number:04}", f"h{number:04}:8001")
    with capture_logs() as logs:
        async with watched(prefix(etcd)) as watching:
            assert await watching.addresses() == [f"h{n:04}:8001" for n in range(1, 1001)]
    (line,) = logs
    assert (line["found"], line["kept"]) == (1002, 1000)


@pytest.mark.anyio
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


@pytest.mark.anyio
@needs_etcd
async def test_a_compacted_revision_is_no_failure(etcd):
    """The watch begins after changes that were compacted since the keys were read."""
    etcd.put("/triton/a", "10.0.0.1:8001")
    with capture_logs() as logs:
        async with watched(prefix(etcd)) as watching:
            await watching.endpoints()
            etcd.put("/triton/a", "10.0.0.2:8001")
            revision = etcd.put("/triton/b", "10.0.0.3:8001")
            etcd.call("/v3/kv/compaction", revision=str(revision), physical=True)
            assert await watching.addresses() == ["10.0.0.2:8001", "10.0.0.3:8001"]
    assert logs == []


@pytest.mark.anyio
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


@pytest.mark.anyio
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


def need_password(etcd: EtcdServer) -> None:
    etcd.call("/v3/auth/user/add", name="root", password="p@ss")
    etcd.call("/v3/auth/role/add", name="root")
    etcd.call("/v3/auth/user/grant", user="root", role="root")
    etcd.call("/v3/auth/enable")


@pytest.mark.anyio
@needs_etcd
async def test_a_user_logs_in(etcd):
    etcd.put("/triton/a", "10.0.0.1:8001")
    need_password(etcd)
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


@pytest.mark.anyio
@needs_etcd
async def test_a_wrong_password_is_logged_without_it(etcd):
    need_password(etcd)
    with capture_logs() as logs:
        async with watched(prefix(f"root:guess@127.0.0.1:{etcd.port}")) as watching:
            watching.read_ahead()
            await until(lambda: bool(logs))
    assert "authenticat" in logs[0]["reason"]
    assert "guess" not in str(logs)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b" h:8001\n", EndpointAddress("h:8001")),
        (b"h:8001?metrics=8012", EndpointAddress("h:8001", 8012)),
        (b'{"address": "[::1]:8001"}', EndpointAddress("[::1]:8001")),
        (b'{"address": "h:8001", "metrics_port": null}', EndpointAddress("h:8001")),
        (b'{"address": "h:8001", "metrics_port": 8012}', EndpointAddress("h:8001", 8012)),
    ],
)
def test_values(value, expected):
    assert endpoint_in(value) == expected


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "has no port"),
        (b"\xff", "codec"),
        (b"{", "EOF"),
        (b"{}", "address: Field required"),
        (b'{"address": "h"}', "has no port"),
        (b'{"address": "h:1", "metrics_port": true}', "metrics_port: "),
        (b'{"address": "h:1", "metrics_port": 70000}', "metrics_port: "),
        (b'{"address": "h:1", "weight": 3}', "weight: "),
    ],
)
def test_values_that_are_no_endpoints(value, says):
    with pytest.raises(ValueError, match=says):
        endpoint_in(value)


@given(st.binary(min_size=1, max_size=6), st.binary(max_size=8))
def test_the_end_of_a_prefix_comes_after_its_keys_only(prefix, key):
    end = end_of_prefix(prefix)
    is_within = prefix <= key and (end == b"\0" or key < end)
    assert is_within == key.startswith(prefix) or end == b"\0"
