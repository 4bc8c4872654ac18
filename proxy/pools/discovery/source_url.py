"""Parses where a pool's endpoints are found: TRITON_URL, and the pools of models.yaml.

docs/pools.md has the syntax. Nothing is connected or read before the source is watched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from proxy.pools.discovery.dns import DnsName
from proxy.pools.discovery.endpoint_address import (
    endpoint_address,
    host_and_port,
    joined,
    port,
    shown,
)
from proxy.pools.discovery.etcd import EtcdPrefix
from proxy.pools.discovery.kubernetes import KubernetesService
from proxy.pools.discovery.source import InvalidSource, Source, StaticList, WatchedFile

MOST_ETCD_HOSTS = 16
MOST_CHARS = 300_000  # of a URL: a static list of as many endpoints as a pool may have
SYNTAX = (
    "grpc://host:port,…, dns+grpc://name:port, k8s+grpc://namespace/service:port, "
    "etcd+grpc://host:2379/prefix, file+grpc:///path; grpcs for TLS"
)


def parse(text: str) -> Source:
    """Raises InvalidSource: it says what is wrong with which value, and what to write."""
    if len(text) > MOST_CHARS:
        raise InvalidSource(f"{shown(text)}: more than {MOST_CHARS:,} characters")
    safe = without_password(text)
    scheme, separator, rest = text.partition("://")
    kind, _, transport = scheme.rpartition("+")
    if not separator or transport not in ("grpc", "grpcs") or kind not in _PARSERS:
        raise InvalidSource(f"{shown(safe)!r} is not where endpoints are found: write {SYNTAX}")
    try:
        return _PARSERS[kind](text if not kind else rest, transport == "grpcs", safe)
    except ValueError as error:
        why = str(error).replace(text, safe)
        raise InvalidSource(f"{shown(safe)!r}: {why}") from None


def without_password(text: str) -> str:
    """The URL with *** for what stands between its scheme and its last @."""
    scheme, separator, rest = text.partition("://")
    _, at, place = rest.rpartition("@")
    return f"{scheme}{separator}***@{place}" if at else text


def _static_list(text: str, is_tls: bool, safe: str) -> StaticList:
    parts = [part.strip() for part in text.split(",")]
    scheme = "grpcs://" if is_tls else "grpc://"
    for part in parts:
        if not part.startswith(scheme):
            raise ValueError(f"{shown(part)!r} must begin with {scheme}, as the first endpoint")
    addresses = [endpoint_address(part.removeprefix(scheme)) for part in parts]
    for address, times in Counter(each.address for each in addresses).items():
        if times > 1:
            raise ValueError(f"{address} is listed twice")
    return StaticList(is_tls=is_tls, text=safe, addresses=frozenset(addresses))


def _dns(rest: str, is_tls: bool, safe: str) -> DnsName:
    authority, options = _options(rest, ("metrics",))
    name, number = host_and_port(authority)
    metrics = options.get("metrics")
    return DnsName(
        is_tls=is_tls,
        text=safe,
        host=name,
        port=number,
        metrics_port=None if metrics is None else port(metrics, "metrics"),
    )


def _kubernetes(rest: str, is_tls: bool, safe: str) -> KubernetesService:
    target, options = _options(rest, ("metrics", "api"))
    found = re.fullmatch(r"([^/:]+)/([^/:]+):([^/:]+)", target)
    if found is None:
        raise ValueError("write k8s+grpc://namespace/service:port, with a port's number or name")
    namespace, service, number = found.groups()
    metrics, api = options.get("metrics"), options.get("api")
    return KubernetesService(
        is_tls=is_tls,
        text=safe,
        namespace=_label(namespace, "namespace"),
        service=_label(service, "service"),
        port=_port_or_name(number),
        metrics_port=None if metrics is None else _port_or_name(metrics),
        api_url=None if api is None else _api_url(api),
    )


def _label(text: str, what: str) -> str:
    """A name as Kubernetes gives them: RFC 1123, lower case."""
    if re.fullmatch("[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", text, re.ASCII):
        return text
    raise ValueError(f"{shown(text)!r} is not the name of a {what}: use letters a-z, digits and -")


def _port_or_name(text: str) -> int | str:
    return port(text, "the port") if text.isdigit() else _label(text, "port")


def _api_url(text: str) -> str:
    scheme, separator, authority = text.rstrip("/").partition("://")
    if not separator or scheme not in ("http", "https"):
        raise ValueError(f"api={shown(text)}: write api=http://127.0.0.1:8001, as of kubectl proxy")
    return f"{scheme}://{joined(*host_and_port(authority))}"


def _etcd(rest: str, is_tls: bool, safe: str, *, scheme: str) -> EtcdPrefix:
    target, options = _options(rest, ("ca_file",))
    if "ca_file" in options and scheme == "http":
        raise ValueError("ca_file is for TLS to etcd: begin with etcds+")
    user, at, place = target.rpartition("@")
    hosts, _, prefix = place.partition("/")
    if not prefix:
        raise ValueError("the prefix of the keys is missing: write …:2379/triton/endpoints/")
    found = [host_and_port(each.strip()) for each in hosts.split(",")]
    if len(found) > MOST_ETCD_HOSTS:
        raise ValueError(f"{len(found)} hosts of etcd; at most {MOST_ETCD_HOSTS} are tried")
    username, password = _credentials(user) if at else (None, None)
    return EtcdPrefix(
        is_tls=is_tls,
        text=safe,
        hosts=tuple(f"{scheme}://{joined(*each)}" for each in found),
        prefix=unquote(f"/{prefix}", errors="strict"),
        username=username,
        password=password,
        ca_file=Path(options["ca_file"]) if "ca_file" in options else None,
    )


def _credentials(user: str) -> tuple[str, str]:
    name, colon, password = user.partition(":")
    if not name or not colon or not password or "/" in user:
        raise ValueError("write user:password@ before etcd's hosts, special characters as %XX")
    return unquote(name, errors="strict"), unquote(password, errors="strict")


def _file(rest: str, is_tls: bool, safe: str) -> WatchedFile:
    path = unquote(rest, errors="strict")
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ValueError("write an absolute path of a file after ://, as file+grpc:///etc/list")
    return WatchedFile(is_tls=is_tls, text=safe, path=Path(path))


def _options(rest: str, known: Iterable[str]) -> tuple[str, dict[str, str]]:
    """What stands before `?`, and the options after it."""
    target, mark, query = rest.partition("?")
    pairs = []
    if mark:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=8)
    for name, value in pairs:
        if name not in known:
            raise ValueError(f"there is no option {name!r} here, only {', '.join(known)}")
        if not value:
            raise ValueError(f"the option {name!r} has no value")
    if len(dict(pairs)) < len(pairs):
        raise ValueError("an option is given twice")
    return target, dict(pairs)


_PARSERS: dict[str, Callable[[str, bool, str], Source]] = {
    "": _static_list,
    "dns": _dns,
    "k8s": _kubernetes,
    "etcd": partial(_etcd, scheme="http"),
    "etcds": partial(_etcd, scheme="https"),
    "file": _file,
}
