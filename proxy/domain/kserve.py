"""Inference on any Triton model, as KServe's protocol v2 has it: values, and the port to Triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Parameter = bool | int | float | str
Parameters = Mapping[str, Parameter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """data: the elements in row-major order, little-endian; of BYTES, each behind its length of
    four bytes.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedOutput:
    name: str
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KserveRequest:
    """outputs: empty asks for all of them. id: "" is none."""

    id: str
    parameters: Parameters
    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KserveResponse:
    model: str
    version: str
    id: str
    parameters: Parameters
    outputs: tuple[Tensor, ...]


Metadata = Mapping[str, Any]  # of a server or a model: a body of the protocol


class KserveBackend(Protocol):
    """A Triton. version "": the one that it chooses.

    Raises, everywhere: UnknownModel, ModelUnavailable, InvalidRequest (with Triton's words about
    the request), DeadlineExceeded, EngineFailed.
    """

    async def infer(
        self, model: str, version: str, request: KserveRequest, *, timeout_s: float
    ) -> KserveResponse: ...

    async def model_metadata(self, model: str, version: str) -> Metadata: ...

    async def is_model_ready(self, model: str, version: str) -> bool: ...

    async def is_server_ready(self) -> bool: ...

    async def server_metadata(self) -> Metadata: ...
