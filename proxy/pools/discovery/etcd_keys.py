"""Keys of etcd whose values are endpoints. Does no I/O; used by `etcd`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import orjson
import structlog

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_address import (
    endpoint_address,
    host_and_port,
    joined,
    shown,
)

MOST_KEYS = 5000
KEY_BYTES = 4096
VALUE_BYTES = 4096

logger = structlog.get_logger(__name__)


class EtcdKeys:
    """The endpoints under a prefix, by key. A value that is no endpoint is logged and left out."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._endpoints: dict[bytes, EndpointAddress] = {}
        self._keys: set[bytes] = set()
        self._wrong: dict[bytes, int] = {}  # hashes of values that were logged

    def clear(self) -> None:
        """Before all keys are put again."""
        self._endpoints, self._keys = {}, set()

    def forget_removed(self) -> None:
        """After all keys were put again: a wrong value is logged anew if its key comes back."""
        self._wrong = {key: value for key, value in self._wrong.items() if key in self._keys}

    def put(self, found: Mapping[str, Any]) -> None:
        """Raises ValueError: it is no key and value, or there are too many keys."""
        key, value = key_of(found), _decoded(found.get("value", ""))
        self._keys.add(key)
        if len(self._keys) > MOST_KEYS:
            raise ValueError(f"there are more than {MOST_KEYS:,} keys under the prefix")
        self._endpoints.pop(key, None)
        try:
            self._endpoints[key] = endpoint_in(value)
            self._wrong.pop(key, None)
        except ValueError as error:
            self._note(key, value, str(error))

    def remove(self, found: Mapping[str, Any]) -> None:
        """Raises ValueError: it is no key."""
        key = key_of(found)
        self._keys.discard(key)
        self._endpoints.pop(key, None)
        self._wrong.pop(key, None)

    def addresses(self) -> list[EndpointAddress]:
        return list(self._endpoints.values())

    def _note(self, key: bytes, value: bytes, reason: str) -> None:
        """Logs a wrong value once."""
        if self._wrong.get(key) != hash(value):
            self._wrong[key] = hash(value)
            logger.warning(
                "a key is no endpoint",
                source=self._source,
                key=shown(key.decode(errors="replace")),
                reason=reason,
                advice="correct or delete this key in etcd",
            )


def endpoint_in(value: bytes) -> EndpointAddress:
    """Of `host:port?metrics=port`, or of JSON as {"address": "host:port", "metrics_port": 8002}.

    Raises ValueError.
    """
    if len(value) > VALUE_BYTES:
        raise ValueError(f"the value has more than {VALUE_BYTES:,} bytes")
    text = value.decode().strip()
    if not text.startswith("{"):
        return endpoint_address(text)
    found = orjson.loads(text)
    unknown = ", ".join(map(repr, found.keys() - {"address", "metrics_port"}))
    if unknown:
        raise ValueError(f"unknown: {shown(unknown)}; an endpoint has address and metrics_port")
    address, metrics_port = found.get("address"), found.get("metrics_port")
    if not isinstance(address, str):
        raise ValueError('an endpoint needs "address": "host:port"')
    if metrics_port is None:
        return EndpointAddress(joined(*host_and_port(address)))
    if type(metrics_port) is not int or not 0 < metrics_port < 65_536:
        raise ValueError(f"metrics_port is {shown(repr(metrics_port))}, no number 1 to 65535")
    return EndpointAddress(joined(*host_and_port(address)), metrics_port)


def key_of(found: Mapping[str, Any]) -> bytes:
    """Raises ValueError."""
    key = _decoded(found.get("key"))
    if not 0 < len(key) <= KEY_BYTES:
        raise ValueError(f"etcd sent a key of {len(key):,} bytes; 1 to {KEY_BYTES:,} are read")
    return key


def _decoded(text: object) -> bytes:
    """The gateway of etcd writes bytes in base64."""
    if not isinstance(text, str):
        raise ValueError("etcd sent a key or value that is no text")
    return base64.b64decode(text, validate=True)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def end_of_prefix(prefix: bytes) -> bytes:
    """The first key after all keys with the prefix, as etcd's `range_end`; prefix is not empty."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else b"\0"
