"""endpoint_slices, etcd_keys and http_stream: what is read out of answers, without I/O."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.etcd import (
    MOST_KEYS,
    EtcdKeys,
    encoded,
    end_of_prefix,
    endpoint_in,
)
from proxy.pools.discovery.http_stream import LineBuffer
from proxy.pools.discovery.kubernetes import (
    MOST_READY,
    MOST_SLICES,
    EndpointSlices,
)
from tests.doubles.kubernetes_api import endpoint, endpoint_slice


def addresses(*slices, port: int | str = 8001, metrics: int | str | None = None) -> list[str]:
    found = EndpointSlices(port, metrics)
    for each in slices:
        found.put(each)
    return sorted(each.address for each in found.addresses())


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
    found = EndpointSlices("grpc", "metrics")
    found.put(old)
    found.put(new)
    expected = {EndpointAddress("10.0.0.1:8001", 8002), EndpointAddress("10.0.0.2:9001", 9002)}
    assert set(found.addresses()) == expected
    assert found.problem is None


def test_a_slice_without_the_port_is_a_problem_until_it_goes():
    found = EndpointSlices("http", None)
    found.put(endpoint_slice("a", endpoint("10.0.0.1")))
    assert found.addresses() == []
    assert found.problem == "EndpointSlice a has no port named 'http'; it has grpc, metrics"
    found.remove(endpoint_slice("a"))
    assert found.problem is None


def test_a_pod_with_two_addresses_is_one_endpoint():
    four = endpoint_slice("a", endpoint("10.0.0.1", uid="pod"))
    six = endpoint_slice("b", endpoint("fd00::1", uid="pod"), family="IPv6")
    assert addresses(four, six) == addresses(six, four) == ["10.0.0.1:8001"]
    assert addresses(six) == ["[fd00::1]:8001"]


def test_a_pod_in_two_slices_is_one_endpoint():
    one = endpoint_slice("a", endpoint("10.0.0.1"))
    assert addresses(one, {**one, "metadata": {"name": "b"}}) == ["10.0.0.1:8001"]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"metadata": {"name": ""}},
        {"metadata": {"name": "a"}, "endpoints": {}},
        {"metadata": {"name": "a"}, "endpoints": [1]},
        {"metadata": {"name": "a"}, "endpoints": [{"conditions": 1}]},
        {"metadata": {"name": "a"}, "endpoints": [{"addresses": ["10.0.0.1"]}]},
        {**endpoint_slice("a"), "endpoints": [{"addresses": []}]},
        {**endpoint_slice("a"), "endpoints": [{"addresses": [1]}]},
        {**endpoint_slice("a"), "endpoints": [{"addresses": ["a b"]}]},
        {**endpoint_slice("a"), "endpoints": [{"addresses": ["::x"]}]},
        {**endpoint_slice("a", endpoint("h")), "addressType": ["IPv4"]},
    ],
)
def test_what_is_no_slice_changes_nothing(wrong):
    found = EndpointSlices(8001, None)
    found.put(endpoint_slice("a", endpoint("10.0.0.1")))
    with pytest.raises(
        ValueError, match=r"Kubernetes|EndpointSlice|list|host name|hex digits|At least"
    ):
        found.put(wrong)
    assert found.addresses() == [EndpointAddress("10.0.0.1:8001")]


def test_memory_is_bounded():
    found = EndpointSlices(8001, None)
    half = [endpoint(f"10.{number >> 8}.{number & 255}.1") for number in range(MOST_READY // 2)]
    found.put(endpoint_slice("a", *half))
    found.put(endpoint_slice("b", *half))
    found.put(endpoint_slice("b", *half))
    with pytest.raises(ValueError, match="more than 5,000 endpoints"):
        found.put(endpoint_slice("c", endpoint("10.0.0.1")))
    empty = EndpointSlices(8001, None)
    for number in range(MOST_SLICES):
        empty.put(endpoint_slice(f"slice-{number}"))
    with pytest.raises(ValueError, match="more than 1,000 EndpointSlices"):
        empty.put(endpoint_slice("one-more"))


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
def test_values_of_etcd(value, expected):
    assert endpoint_in(value) == expected


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "has no port"),
        (b"\xff", "codec"),
        (b"h:8001 " * 1000, "more than 4,096 bytes"),
        (b"{", r"unexpected|JSON|EOF|end"),
        (b"{}", 'needs "address"'),
        (b'{"address": 1}', 'needs "address"'),
        (b'{"address": "h"}', "has no port"),
        (b'{"address": "h:1", "metrics_port": true}', "metrics_port is True"),
        (b'{"address": "h:1", "metrics_port": 70000}', "metrics_port is 70000"),
        (b'{"address": "h:1", "weight": 3}', "unknown: 'weight'"),
    ],
)
def test_values_of_etcd_that_are_no_endpoints(value, says):
    with pytest.raises(ValueError, match=says):
        endpoint_in(value)


def test_keys_of_etcd_are_bounded():
    keys = EtcdKeys("etcd+grpc://h:2379/p")

    def pair(key: bytes) -> dict[str, str]:
        return {"key": encoded(key), "value": encoded(b"h:8001")}

    for number in range(MOST_KEYS):
        keys.put(pair(b"%d" % number))
    keys.put(pair(b"1"))
    with pytest.raises(ValueError, match="more than 5,000 keys"):
        keys.put(pair(b"one more"))
    for wrong in (b"", b"x" * 4097):
        with pytest.raises(ValueError, match="1 to 4,096 are read"):
            keys.put(pair(wrong))


@pytest.mark.parametrize("wrong", [{}, {"key": 1}, {"key": "a"}, {"key": "YQ==", "value": {}}])
def test_what_is_no_key_and_value_of_etcd(wrong):
    with pytest.raises(ValueError, match=r"etcd sent|base64|padding|decode"):
        EtcdKeys("etcd+grpc://h:2379/p").put(wrong)


@given(st.binary(min_size=1, max_size=6), st.binary(max_size=8))
def test_the_end_of_a_prefix_comes_after_its_keys_only(prefix, key):
    end = end_of_prefix(prefix)
    is_within = prefix <= key and (end == b"\0" or key < end)
    assert is_within == key.startswith(prefix) or end == b"\0"


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)))
def test_lines_are_the_same_however_they_arrive(content, cuts):
    places = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    lines = LineBuffer(100)
    found = []
    for start, end in itertools.pairwise(places):
        found += lines.push(content[start:end])
    assert found == [line for line in content.split(b"\n")[:-1] if line.strip()]


def test_a_line_without_end_is_refused_in_time():
    lines = LineBuffer(1000)
    for _ in range(100):
        assert lines.push(b"0123456789") == []
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        lines.push(b"0")
