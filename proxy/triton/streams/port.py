"""The port: a call of ModelStreamInfer with one request and many responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from grpc import StatusCode
from tritonclient.grpc import service_pb2
from typing_extensions import Self

# A response may have so many bytes; a longer one ends its stream with RESOURCE_EXHAUSTED.
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
# How long a stream that nobody reads any more may take to its end.
LET_GO_TIMEOUT_S = 5.0


class StreamFailed(Exception):
    """How gRPC says it: a code, and the server's or the transport's own words."""

    def __init__(self, code: StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """`engine`: the Triton model that takes leases. `call`: what holds the one of the given id."""

    engine: str
    call: Callable[[str], service_pb2.ModelInferRequest]


class ResponseStream(Protocol):
    """The responses of one call in order. Whoever opened it ends it, too, by one of the two ways.

    Iterating raises StreamFailed after the last response where the call failed.
    """

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> service_pb2.ModelStreamInferResponse: ...

    def beside(self, request: service_pb2.ModelInferRequest, *, timeout_s: float) -> ResponseStream:
        """A call to the server that this one is at, while it runs; behind one address there may
        be several. Afterwards, to any.
        """
        ...

    def cancel(self) -> None:
        """Ends it now, at the server too; nothing where it has ended."""
        ...

    def let_go(self) -> None:
        """Lets it come to its end by itself, unread; it is cancelled after LET_GO_TIMEOUT_S."""
        ...


class Streams(Protocol):
    """Entered on the event loop that uses it. Leaving ends the streams that still run."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    def open(
        self,
        request: service_pb2.ModelInferRequest,
        *,
        timeout_s: float,
        terms: LeaseTerms | None = None,
    ) -> ResponseStream:
        """Connects where it has to; a failure to do so is the stream's. With `terms` it runs under
        a lease of its connection, see leases.
        """
        ...
