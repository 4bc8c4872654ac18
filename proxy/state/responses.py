"""Responses that can be read later, and those that are generated in the background: the port."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ConfigDict, TypeAdapter

from proxy.domain.delta_log import NumberedDelta

OVERHEAD_BYTES = 1_000  # of a kept response, besides its texts
TENANT_RESPONSES = 10_000
_DELTAS: TypeAdapter[Any] = TypeAdapter(
    list[NumberedDelta], config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLimits:
    """keep_s: 0: nothing is kept. bytes: of all kept responses with their inputs."""

    keep_s: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseKey:
    """id: digest of the response's id, and of who may read it. tenant: digest of whose bound it
    counts in.
    """

    id: bytes
    tenant: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponse:
    """Both are JSON. input: a list of all items that the model has read."""

    response: bytes
    input: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.response) + len(self.input) + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A response that this process generates in the background, as long as it renews the claim."""

    key: ResponseKey
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostJob:
    """One whose process has ended. job: as `begin` got it. events: how many there are. deltas: of
    the engine, all of them. takes: how often it was taken from a lost process, this time too; not
    from one that released it.
    """

    claim: Claim
    job: bytes
    input: bytes
    events: int
    deltas: Sequence[NumberedDelta]
    takes: int


class EventsNotKept(Exception):
    """The response has no events any more, or never had any."""


class ResponsesUnavailable(Exception):
    """They cannot be read or written at present. The message is for the log."""


class ResponseStore(Protocol):
    """All methods raise ResponsesUnavailable where the store cannot be used."""

    limits: ResponseLimits

    async def put(self, key: ResponseKey, kept: KeptResponse) -> None:
        """The oldest may have to make room."""
        ...

    async def response(self, key: ResponseKey) -> bytes | None: ...

    async def input(self, key: ResponseKey) -> bytes | None: ...

    async def delete(self, key: ResponseKey) -> bool:
        """Whether there was one. Its generation ends."""
        ...

    async def begin(self, key: ResponseKey, kept: KeptResponse, job: bytes) -> Claim:
        """job: what another process needs in order to continue."""
        ...

    async def append(
        self, claim: Claim, events: Sequence[bytes], deltas: Sequence[NumberedDelta]
    ) -> bool:
        """False: the response was cancelled or deleted, or another process has it now."""
        ...

    async def finish(self, claim: Claim, kept: KeptResponse) -> None:
        """After that there are no more events."""
        ...

    def events(self, key: ResponseKey, after: int) -> AsyncGenerator[bytes, None]:
        """What follows the first `after` events, until the end.

        Raises:
            EventsNotKept.
        """
        ...

    async def cancel(self, key: ResponseKey) -> None:
        """Whoever generates it ends it with its next event, or soon."""
        ...

    async def lost(self) -> LostJob | None:
        """Claims one that nobody generates any more."""
        ...

    async def renew(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Those that were cancelled, deleted or taken over."""
        ...

    async def release(self, claims: Sequence[Claim]) -> None:
        """Another process continues them at once. Never fails."""
        ...

    async def remove_expired(self) -> int:
        """How many bytes are kept then."""
        ...


def deltas_as_json(deltas: Sequence[NumberedDelta]) -> bytes:
    return _DELTAS.dump_json(list(deltas)) if deltas else b"[]"


def deltas_of_json(data: bytes) -> list[NumberedDelta]:
    found: list[NumberedDelta] = _DELTAS.validate_json(data)
    return found
