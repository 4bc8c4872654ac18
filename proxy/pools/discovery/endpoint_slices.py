"""Endpoints in the EndpointSlices of one Kubernetes service. Does no I/O; used by `kubernetes`.

The fields are those of discovery.k8s.io/v1: kubernetes/api, discovery/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_address import host, joined
from proxy.pools.discovery.http_stream import objects

MOST_SLICES = 1000
MOST_READY = 5000  # endpoints of all slices: more are not held
_FAMILIES = ("IPv4", "IPv6", "FQDN")


@dataclass(frozen=True, slots=True, order=True)
class _Ready:
    """One ready endpoint of a slice. family: index in _FAMILIES. pod: its uid, or its address."""

    family: int
    address: str
    pod: str
    metrics_port: int = 0


class EndpointSlices:
    """port, metrics_port: of pods, or names of ports in the slices."""

    def __init__(self, port: int | str, metrics_port: int | str | None) -> None:
        self._port = port
        self._metrics_port = metrics_port
        self._ready: dict[str, tuple[_Ready, ...]] = {}
        self._problems: dict[str, str] = {}

    @property
    def problem(self) -> str | None:
        """Why endpoints of some slice cannot be used."""
        return min(self._problems.values(), default=None)

    def put(self, found: Mapping[str, Any]) -> None:
        """Adds a slice, or replaces the one of its name.

        Raises ValueError: it is no EndpointSlice, or there are too many slices or endpoints.
        """
        name = _name(found)
        ready = self._endpoints(name, found)
        others = sum(len(each) for each in self._ready.values()) - len(self._ready.get(name, ()))
        if others + len(ready) > MOST_READY:
            raise ValueError(f"the service has more than {MOST_READY:,} endpoints")
        self._ready[name] = ready
        if len(self._ready) > MOST_SLICES:
            raise ValueError(f"the service has more than {MOST_SLICES:,} EndpointSlices")

    def remove(self, found: Mapping[str, Any]) -> None:
        """Raises ValueError: it is no EndpointSlice."""
        self._ready.pop(_name(found), None)
        self._problems.pop(_name(found), None)

    def addresses(self) -> list[EndpointAddress]:
        """One for each pod: of a pod with several addresses, an IPv4 address."""
        pods: dict[str, _Ready] = {}
        for ready in self._ready.values():
            for each in ready:
                other = pods.get(each.pod)
                if other is None or each < other:
                    pods[each.pod] = each
        return [EndpointAddress(each.address, each.metrics_port or None) for each in pods.values()]

    def _endpoints(self, name: str, found: Mapping[str, Any]) -> tuple[_Ready, ...]:
        ready = [each for each in objects(found, "endpoints") if _is_ready(each)]
        self._problems.pop(name, None)
        if not ready:
            return ()
        port = self._number(name, self._port, found)
        if port is None:
            return ()
        metrics = self._metrics_port
        metrics_port = None if metrics is None else self._number(name, metrics, found)
        family = _family(found)
        return tuple(_ready(each, family, port, metrics_port) for each in ready)

    def _number(self, name: str, port: int | str, found: Mapping[str, Any]) -> int | None:
        if isinstance(port, int):
            return port
        ports = {str(each.get("name") or ""): each.get("port") for each in objects(found, "ports")}
        number = ports.get(port)
        if isinstance(number, int) and 0 < number < 65_536:
            return number
        names = ", ".join(sorted(ports)) or "none"
        self._problems[name] = f"EndpointSlice {name} has no port named {port!r}; it has {names}"
        return None


def metadata(found: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError: it is no object of Kubernetes."""
    value = found.get("metadata")
    if not isinstance(value, dict):
        raise ValueError("the Kubernetes API sent an object without metadata")
    return value


def _name(found: Mapping[str, Any]) -> str:
    name = metadata(found).get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("the Kubernetes API sent an EndpointSlice without a name")
    return name


def _is_ready(endpoint: Mapping[str, Any]) -> bool:
    """Conditions that are not reported count as ready and not terminating.

    `ready` alone does not do: it is true for terminating pods of a service that publishes
    addresses of pods that are not ready.
    """
    conditions = endpoint.get("conditions") or {}
    if not isinstance(conditions, dict):
        raise ValueError("the Kubernetes API sent an endpoint whose conditions are no object")
    return conditions.get("ready") is not False and conditions.get("terminating") is not True


def _family(found: Mapping[str, Any]) -> int:
    family = found.get("addressType")
    if family not in _FAMILIES:
        raise ValueError(f"EndpointSlice {_name(found)} has the unknown addressType {family!r}")
    return _FAMILIES.index(family)


def _ready(endpoint: Mapping[str, Any], family: int, port: int, metrics_port: int | None) -> _Ready:
    """The addresses of one endpoint are interchangeable, so the first one is used."""
    addresses = endpoint.get("addresses")
    if not isinstance(addresses, list) or not addresses or not isinstance(addresses[0], str):
        raise ValueError("the Kubernetes API sent an endpoint without an address")
    found = addresses[0]
    address = joined(host(f"[{found}]" if ":" in found else found), port)
    target = endpoint.get("targetRef")
    uid = target.get("uid") if isinstance(target, dict) else None
    return _Ready(family, address, uid if isinstance(uid, str) else address, metrics_port or 0)
