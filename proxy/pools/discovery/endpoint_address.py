"""Reads one endpoint as operators write it, in a list, a file or etcd: `host:port?metrics=port`."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address

from proxy.domain.endpoints import EndpointAddress

HOST_CHARS = 253  # RFC 1035, section 2.3.4, less the length bytes
SHOWN_CHARS = 200
_LABELS = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.(?!-)[a-z0-9_-]{1,63})*\.?", re.ASCII)


def endpoint_address(text: str) -> EndpointAddress:
    """Raises ValueError, with the value and what to write."""
    authority, _, query = text.partition("?")
    name, _, number = query.partition("=")
    if query and name != "metrics":
        raise ValueError(f"{shown(text)}: an endpoint has no option {name!r}; metrics=PORT is one")
    host, port_number = host_and_port(authority)
    return EndpointAddress(
        joined(host, port_number), port(number, f"metrics of {authority}") if query else None
    )


def host_and_port(text: str) -> tuple[str, int]:
    """The host in lower case, and an IPv6 address without brackets. Raises ValueError."""
    head, colon, number = text.rpartition(":")
    if not colon:
        raise ValueError(f"{shown(text)!r} has no port: write host:port")
    return host(head), port(number, text)


def host(text: str) -> str:
    """A host name or IP address, without brackets and in lower case. Raises ValueError."""
    if text.startswith("[") and text.endswith("]"):
        return str(IPv6Address(text[1:-1]))
    if ":" in text:
        raise ValueError(f"{shown(text)!r}: write an IPv6 address in brackets, as [::1]")
    name = text.lower()
    if len(name) > HOST_CHARS or not _LABELS.fullmatch(name):
        raise ValueError(f"{shown(text)!r} is neither a host name nor an IP address")
    if not name.rstrip(".").rpartition(".")[2].isdigit():
        return name
    return str(ip_address(name))  # a name that ends with a number is an IPv4 address, RFC 3696


def port(text: str, where: str) -> int:
    """Raises ValueError."""
    if re.fullmatch("[0-9]{1,5}", text, re.ASCII) and 0 < int(text) < 65_536:
        return int(text)
    raise ValueError(f"{shown(where)}: {shown(text)!r} is not a port, which is 1 to 65535")


def joined(host: str, port: int) -> str:
    """`host:port`, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def shown(text: str) -> str:
    """For an error; a long text is cut."""
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
