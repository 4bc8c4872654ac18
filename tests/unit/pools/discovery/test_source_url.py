"""source_url: what operators write, and what each error tells them to write."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.dns import DnsName
from proxy.pools.discovery.etcd import EtcdPrefix
from proxy.pools.discovery.kubernetes import KubernetesService
from proxy.pools.discovery.source import InvalidSource, StaticList, WatchedFile
from proxy.pools.discovery.source_url import MOST_CHARS, parse


def test_a_static_list():
    text = "grpc://one:8001, grpc://10.0.0.2:8001?metrics=8012,grpc://[FE80::1]:8001"
    expected = {
        EndpointAddress("one:8001"),
        EndpointAddress("10.0.0.2:8001", 8012),
        EndpointAddress("[fe80::1]:8001"),
    }
    found = parse(text)
    assert isinstance(found, StaticList)
    assert (found.text, found.is_tls, found.addresses) == (text, False, expected)
    assert parse("grpcs://one:8001").is_tls


PLAIN = {"username": None, "password": None, "ca_file": None}


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        (
            "dns+grpc://Triton.llm.svc:8001?metrics=8012",
            DnsName,
            {"is_tls": False, "host": "triton.llm.svc", "port": 8001, "metrics_port": 8012},
        ),
        (
            "k8s+grpcs://llm/triton:grpc?metrics=metrics&api=http://127.0.0.1:8080/",
            KubernetesService,
            {"is_tls": True, "namespace": "llm", "service": "triton", "port": "grpc"}
            | {"metrics_port": "metrics", "api_url": "http://127.0.0.1:8080"},
        ),
        (
            "k8s+grpc://llm/triton:8001",
            KubernetesService,
            {"port": 8001, "metrics_port": None, "api_url": None},
        ),
        (
            "etcd+grpc://a:2379,[::1]:2379/triton/endpoints/",
            EtcdPrefix,
            {"hosts": ("http://a:2379", "http://[::1]:2379"), "prefix": "/triton/endpoints/"}
            | PLAIN,
        ),
        (
            "etcds+grpcs://me:p%40%2F%3A@a:2379/triton/?ca_file=/etc/etcd.pem",
            EtcdPrefix,
            {"is_tls": True, "hosts": ("https://a:2379",), "prefix": "/triton/"}
            | {"username": "me", "password": "p@/:", "ca_file": Path("/etc/etcd.pem")},
        ),
        ("file+grpc:///etc/a%20list", WatchedFile, {"is_tls": False, "path": Path("/etc/a list")}),
    ],
)
def test_each_source(text, kind, fields):
    found = parse(text)
    assert type(found) is kind
    assert {name: getattr(found, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write grpc://host:port"),
        ("h:8001", "'h:8001' is not where"),
        ("http://h:8001", "write grpc://host:port"),
        ("srv+grpc://h:8001", "write grpc://host:port"),
        ("grpc://h", "'h' has no port: write host:port"),
        ("grpc://h:0", "'0' is not a port, which is 1 to 65535"),
        ("grpc://h:65536", "'65536' is not a port"),
        ("grpc://h:\uff18001", "is not a port"),
        ("grpc://h:8001/path", "is not a port"),
        ("grpc://:8001", "'' is neither a host name nor an IP address"),
        ("grpc://a b:8001", "'a b' is neither"),
        ("grpc://1.2.3.999:8001", "1.2.3.999"),
        ("grpc://::1:8001", "write an IPv6 address in brackets"),
        ("grpc://[::g]:8001", "::g"),
        ("grpc://h:8001,grpcs://i:8001", "'grpcs://i:8001' must begin with grpc://"),
        ("grpc://h:8001,i:8001", "'i:8001' must begin with grpc://"),
        ("grpc://h:8001,", "'' must begin with grpc://"),
        ("grpc://h:8001,grpc://H:8001", "h:8001 is listed twice"),
        ("grpc://h:8001?metrics=x", "metrics of h:8001: 'x' is not a port"),
        ("grpc://h:8001?weight=2", "no option 'weight'"),
        ("dns+grpc://h:8001?every=2", "no option 'every' here, only metrics"),
        ("dns+grpc://h:8001?metrics=1&metrics=2", "an option is given twice"),
        ("dns+grpc://h:8001?metrics=", "'metrics' has no value"),
        ("dns+grpc://h:grpc", "'grpc' is not a port"),
        ("k8s+grpc://triton:8001", "write k8s+grpc://namespace/service:port"),
        ("k8s+grpc://llm/triton", "write k8s+grpc://namespace/service:port"),
        ("k8s+grpc://../triton:8001", "'..' is not the name of a namespace"),
        ("k8s+grpc://LLM/triton:8001", "'LLM' is not the name of a namespace"),
        ("k8s+grpc://llm/triton%2f:8001", "not the name of a service"),
        ("k8s+grpc://llm/triton:8001?api=ftp://h:1", "api=ftp://h:1: write api=http"),
        ("etcd+grpc://h:2379", "the prefix of the keys is missing"),
        ("etcd+grpc://h:2379/", "the prefix of the keys is missing"),
        ("etcd+grpc://h/prefix", "'h' has no port"),
        ("etcd+grpc://h:2379/p?ca_file=/x", "ca_file is for TLS to etcd: begin with etcds+"),
        ("etcd+grpc://" + ",".join(f"h{n}:1" for n in range(17)) + "/p", "17 hosts of etcd"),
        ("file+grpc://etc/list", "write an absolute path"),
        ("file+grpc:///etc/", "write an absolute path"),
        ("file+grpc:///etc/%00", "write an absolute path"),
        ("grpc://" + "a" * MOST_CHARS, "more than 300,000 characters"),
    ],
)
def test_an_error_has_the_value_and_what_to_write(text, says):
    with pytest.raises(InvalidSource) as raised:
        parse(text)
    message = str(raised.value)
    assert says in message
    assert text[:190] in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "etcd+grpc://me:hunter2@h:2379",
        "etcd+grpc://me:hunter2@h/p",
        "etcd+grpc://me:hunter2/x@h:2379/p",
        "etcd+grpc://me:hunter2@x@h:2379/p?bad=1",
        "etcd+grpc://:hunter2@h:2379/p",
        "edct+grpc://me:hunter2@h:2379/p",
        "etcd+grpc://me:hunter2%FF@h:2379/p",
    ],
)
def test_no_error_has_a_password(text):
    with pytest.raises(InvalidSource) as raised:
        parse(text)
    assert "hunter2" not in str(raised.value)


def test_neither_text_nor_repr_has_a_password():
    found = parse("etcd+grpc://me:hunter2@h:2379/p")
    assert found.text == "etcd+grpc://***@h:2379/p"
    assert "hunter2" not in repr(found)


@given(st.text(max_size=60), st.sampled_from(["", "dns+", "k8s+", "etcd+", "etcds+", "file+"]))
@example("://" * 90_000, "")
@example("@" * 200_000, "etcd+")
@example("," * 200_000, "")
@example("a." * 100_000 + ":1", "dns+")
@example("h:1?" + "&metrics=1" * 20_000, "dns+")
def test_whatever_is_written_is_parsed_or_refused(rest, kind):
    with suppress(InvalidSource):
        parse(f"{kind}grpc://{rest}")
