"""A pool of Triton servers in models.yaml: where its endpoints are, and how requests are routed."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from build_engines.section import LocalPath, Section

DEFAULT_POOL = "default"  # the one of TRITON_URL, without an entry
MAX_POOLS = 64
MAX_LISTED = 1024  # addresses of a static list
SOURCE_FORMS = (
    "grpc://host:port,…, dns+grpc://name:port, k8s+grpc://namespace/service:port, "
    "etcd+grpc://host:port/prefix/ or file+grpc:///path (grpcs for TLS)"
)
_SOURCE = re.compile(r"((?:dns|k8s|etcd|file)\+)?(grpcs?)://(\S+)")

PoolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


def _joined(given: Any) -> Any:
    """A list of addresses as the source that names them all."""
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        return given
    if dynamic := [one for one in given if not one.startswith(("grpc://", "grpcs://"))]:
        raise ValueError(f"{dynamic[0]!r} is not an address such as grpc://host:8001")
    return ",".join(given)


def _source(text: str) -> str:
    addresses = text.split(",")
    found = [_SOURCE.fullmatch(one) for one in addresses]
    if not all(found):
        wrong = next(one for one, match in zip(addresses, found, strict=True) if match is None)
        raise ValueError(f"{wrong!r} is not a source of endpoints: it must be {SOURCE_FORMS}")
    kinds = {(match[1], match[2]) for match in found if match is not None}
    if len(kinds) > 1:
        raise ValueError(f"{text!r} mixes several kinds of addresses: one pool has one kind")
    if len(addresses) > 1 and kinds.pop()[0] is not None:
        raise ValueError(f"{text!r} names several sources: one pool has one source")
    if len(addresses) > MAX_LISTED:
        raise ValueError(f"{len(addresses)} addresses are listed: at most {MAX_LISTED} can be")
    return text


Source = Annotated[
    str,
    StringConstraints(max_length=65_536),
    AfterValidator(_source),
    BeforeValidator(_joined),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": f"a list of addresses, or {SOURCE_FORMS}",
        }
    ),
]


class PoolEntry(Section):
    """One pool. metrics_port: of an endpoint whose address names none.

    max_ejected_percent: of its endpoints, by their circuit breakers at one time. secret_env: the
    variable of the environment with the value of TRITON_SECRET for these endpoints.
    """

    endpoints: Source
    ca_file: LocalPath | None = None
    metrics_port: Annotated[int, Field(ge=1, le=65_535)] = 8002
    routing: Literal["prefix", "least_outstanding", "random", "round_robin"] = "prefix"
    max_ejected_percent: Annotated[int, Field(ge=0, le=100)] = 50
    secret_env: Variable | None = None
