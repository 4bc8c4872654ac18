"""kubernetes: list and watch of EndpointSlices against an API server that speaks real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.json_watch import MOST_BYTES
from proxy.pools.discovery.kubernetes import EndpointSlice, KubernetesService, addresses_in
from proxy.pools.discovery.source import GrowingPause, InvalidSource
from proxy.pools.discovery.source_url import parse
from tests.doubles.kubernetes_api import (
    BREAK,
    END,
    KubernetesApiServer,
    endpoint,
    endpoint_slice,
)
from tests.doubles.watched_source import until, watched
from tests.fixtures.certificates import certificate, needs_openssl


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def api() -> AsyncIterator[KubernetesApiServer]:
    async with KubernetesApiServer().running() as server:
        server.put(endpoint_slice("first", endpoint("10.0.0.1")))
        yield server


def service(
    api: KubernetesApiServer,
    url: str = "k8s+grpc://llm/triton:grpc",
    *,
    token_file: Path | None = None,
    ca_file: Path | None = None,
) -> KubernetesService:
    source = parse(f"{url}?api={api.url}")
    assert isinstance(source, KubernetesService)
    source.pause = GrowingPause(0.01, 0.02)
    source.token_file, source.ca_file = token_file, ca_file
    return source


@pytest.mark.anyio
async def test_pods_come_and_go(api):
    async with watched(service(api)) as watching:
        assert await watching.addresses() == ["10.0.0.1:8001"]
        api.put(endpoint_slice("second", endpoint("10.0.0.2"), endpoint("10.0.0.3")))
        assert await watching.addresses() == ["10.0.0.1:8001", "10.0.0.2:8001", "10.0.0.3:8001"]
        api.put(endpoint_slice("first", endpoint("10.0.0.1", ready=False)))
        assert await watching.addresses() == ["10.0.0.2:8001", "10.0.0.3:8001"]
        api.delete("second")
        assert await watching.addresses() == []


@pytest.mark.anyio
async def test_many_slices_come_in_pages(api):
    for number in range(25):
        api.put(endpoint_slice(f"slice-{number:02}", endpoint(f"10.1.0.{number}")))
    async with watched(service(api)) as watching:
        assert len(await watching.endpoints()) == 26
    assert [query.get("continue") for _, query, _ in api.requests[:3]] == [None, "10", "20"]


@pytest.mark.anyio
async def test_the_next_watch_begins_at_the_last_bookmark(api):
    with capture_logs() as logs:
        async with watched(service(api)) as watching:
            await watching.endpoints()
            coming = watching.read_ahead()
            await until(lambda: api.watching >= 1)
            api.bookmark()
            api.send(END)
            await until(lambda: api.watching >= 2)
            api.put(endpoint_slice("first", endpoint("10.0.0.2")))
            assert await coming == {EndpointAddress("10.0.0.2:8001")}
    watches = [query for _, query, _ in api.requests if "watch" in query]
    assert [each["resourceVersion"] for each in watches] == ["2", "3"]
    assert len(api.requests) == 3, "nothing was listed again"
    assert logs == []


@pytest.mark.anyio
async def test_changes_that_the_server_has_forgotten_are_listed_again(api):
    with capture_logs() as logs:
        async with watched(service(api)) as watching:
            await watching.endpoints()
            coming = watching.read_ahead()
            await until(lambda: api.watching >= 1)
            api.expire(endpoint_slice("first", endpoint("10.0.0.7")))
            assert await coming == {EndpointAddress("10.0.0.7:8001")}
    assert logs == [], "this is no failure"


@pytest.mark.anyio
async def test_a_watch_from_a_forgotten_version_is_answered_with_410(api):
    async with watched(service(api)) as watching:
        await watching.endpoints()
        api.oldest = 1000
        coming = watching.read_ahead()
        await until(lambda: sum("watch" not in query for _, query, _ in api.requests) >= 3)
        api.put(endpoint_slice("first", endpoint("10.0.0.8")))
        assert await coming == {EndpointAddress("10.0.0.8:8001")}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (BREAK, ""),
        (b"<html>\n", "Invalid JSON"),
        (b"[1]\n", "object"),
        (b'{"type": "ADDED"}\n', "Field required"),
        (b'{"type": "ADDED", "object": {}}\n', "metadata: Field required"),
        (b'{"type": "NEW", "object": {"metadata": {"resourceVersion": "9"}}}\n', "'NEW'"),
        (b'{"type": "ERROR", "object": {"message": "etcd is away"}}\n', "etcd is away"),
        (b"x" * (MOST_BYTES + 2), "more than 4,000,000 bytes"),
        (b"[" * 100_000 + b"\n", "Invalid JSON"),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.anyio
async def test_a_watch_that_breaks_keeps_the_endpoints_and_is_tried_again(api, line, reason):
    with capture_logs() as logs:
        async with watched(service(api)) as watching:
            await watching.endpoints()
            coming = watching.read_ahead()
            await until(lambda: api.watching >= 1)
            api.send(line)
            await until(lambda: api.watching >= 2)
            assert not coming.done(), "the endpoints are the same"
            api.put(endpoint_slice("first", endpoint("10.0.0.2")))
            assert await coming == {EndpointAddress("10.0.0.2:8001")}
    failed, works = logs
    assert failed["event"] == "endpoints cannot be found"
    assert failed["source"].startswith("k8s+grpc://llm/triton:grpc")
    assert reason in failed["reason"]
    assert works["event"] == "endpoints can be found again"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (403, b'{"message": "endpointslices is forbidden"}', "needs `list` and `watch`"),
        (500, b"y" * 10_000, "status 500"),
        (302, b"", "status 302"),
        (200, b"", "Invalid JSON"),
        (200, b'{"metadata": {"resourceVersion": "1"}, "items": [3]}', "items.0: "),
        (200, b" " * (MOST_BYTES + 1), "more than 4,000,000 bytes"),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.anyio
async def test_a_list_that_fails_is_tried_again_and_logged_once(api, status, body, reason):
    api.refusal = (status, body)
    with capture_logs() as logs:
        async with watched(service(api)) as watching:
            coming = watching.read_ahead()
            await until(lambda: len(api.requests) >= 4)
            assert not coming.done()
            api.refusal = None
            assert await coming == {EndpointAddress("10.0.0.1:8001")}
    failed, works = logs
    assert reason in failed["reason"]
    assert len(failed["reason"]) < 600
    assert works["event"] == "endpoints can be found again"


@pytest.mark.anyio
async def test_the_token_is_read_for_each_request(api, tmp_path):
    token = tmp_path / "token"
    token.write_text("one\n")
    async with watched(service(api, token_file=token)) as watching:
        await watching.endpoints()
        token.write_text("two\n")
        watching.read_ahead()
        await until(lambda: api.watching >= 1)
    assert [given for *_, given in api.requests] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize("content", ["", "two words", "one\r\nX-Other: header"])
@pytest.mark.anyio
async def test_a_token_file_without_a_token_is_never_sent(api, tmp_path, content):
    token = tmp_path / "token"
    token.write_text(content)
    with capture_logs() as logs:
        async with watched(service(api, token_file=token)) as watching:
            coming = watching.read_ahead()
            await until(lambda: bool(logs))
            assert api.requests == []
            token.write_text("good")
            await coming
    assert "has no token" in logs[0]["reason"]


@pytest.mark.anyio
async def test_a_port_name_that_the_service_lacks_is_logged_with_those_it_has(api):
    with capture_logs() as logs:
        async with watched(service(api, "k8s+grpc://llm/triton:http")) as watching:
            assert await watching.addresses() == []
    assert "no port named 'http'; it has grpc, metrics" in logs[0]["reason"]


@needs_openssl
@pytest.mark.anyio
async def test_the_clusters_authority_is_the_only_one_trusted(tmp_path):
    files = certificate(tmp_path, "api")
    other, _ = certificate(tmp_path, "other")
    ca_file = tmp_path / "ca.crt"
    with capture_logs() as logs:
        async with (
            KubernetesApiServer(files).running() as api,
            watched(service(api, ca_file=ca_file)) as watching,
        ):
            api.put(endpoint_slice("first", endpoint("10.0.0.1")))
            coming = watching.read_ahead()
            await until(lambda: any("No such file" in each["reason"] for each in logs))
            ca_file.write_bytes(other.read_bytes())
            await until(lambda: any("CERTIFICATE_VERIFY" in each["reason"] for each in logs))
            assert api.requests == []
            ca_file.write_bytes(files[0].read_bytes())
            assert await coming == {EndpointAddress("10.0.0.1:8001")}
            assert api.url.startswith("https://")


def test_a_pod_finds_the_api_of_its_cluster():
    source = parse("k8s+grpc://llm/triton:grpc")
    variables = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "tcp"}
    with pytest.raises(InvalidSource, match="KUBERNETES_SERVICE_HOST"):
        source.find_api(variables)
    source.find_api({**variables, "KUBERNETES_SERVICE_PORT": "443"})
    assert source.api_url == "https://[fd00::1]:443"
    assert str(source.token_file) == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert str(source.ca_file) == "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


def addresses(*slices, port: int | str = 8001) -> list[str]:
    found, _ = addresses_in(map(EndpointSlice.model_validate, slices), port, None)
    return sorted(each.address for each in found)


@pytest.mark.parametrize(
    ("conditions", "is_used"),
    [
        ({"ready": True}, True),
        ({"ready": False}, False),
        ({"ready": None}, True),
        ({"ready": True, "serving": True, "terminating": False}, True),
        ({"ready": False, "serving": True, "terminating": True}, False),
        ({"ready": True, "serving": True, "terminating": True}, False),
        ({"ready": True, "serving": False, "terminating": None}, True),
    ],
)
def test_which_conditions_get_requests(conditions, is_used):
    found = addresses(endpoint_slice("a", endpoint("10.0.0.1", **conditions)))
    assert found == (["10.0.0.1:8001"] if is_used else [])


def test_conditions_and_lists_may_be_absent():
    assert addresses({**endpoint_slice("a"), "endpoints": None, "ports": None}) == []
    bare = {**endpoint_slice("a"), "endpoints": [{"addresses": ["10.0.0.1"]}]}
    assert addresses(bare) == ["10.0.0.1:8001"]


def test_ports_by_name_differ_between_slices():
    old = endpoint_slice("a", endpoint("10.0.0.1"), port=8001)
    new = endpoint_slice("b", endpoint("10.0.0.2"), port=9001)
    found, problem = addresses_in(map(EndpointSlice.model_validate, [old, new]), "grpc", "metrics")
    assert found == [EndpointAddress("10.0.0.1:8001", 8002), EndpointAddress("10.0.0.2:9001", 9002)]
    assert problem is None


def test_a_pod_with_two_addresses_or_in_two_slices_is_one_endpoint():
    four = endpoint_slice("a", endpoint("10.0.0.1", uid="pod"))
    six = endpoint_slice("b", endpoint("fd00::1", uid="pod"), family="IPv6")
    assert addresses(four, six) == addresses(six, four) == ["10.0.0.1:8001"]
    assert addresses(six) == ["[fd00::1]:8001"]
    one = endpoint_slice("a", endpoint("10.0.0.1"))
    assert addresses(one, one) == ["10.0.0.1:8001"]


@pytest.mark.parametrize("address", ["a b", "::x", ""])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(ValueError, match=r"host name|hex digits|At least"):
        addresses(endpoint_slice("a", endpoint(address)))
