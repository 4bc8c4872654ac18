"""Leases: how an engine learns that this process has died, so that it ends its streams.

Triton does not report the end of a client's connection to a running step of an ensemble, but it
does cancel a call that goes directly to the engine model. So each connection keeps such a call
open for each engine that has streams on it, and every stream names that call in a parameter, which
Triton copies to the steps of the ensemble. The engine ends the streams of a cancelled call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import structlog
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

PARAMETER = "lease"
LINGER_S = 2.0  # without streams; a Triton that shuts down waits for open calls
RETRY_S = 5.0  # after the engine has ended the call

Cancel = Callable[[], object]
Hold = Callable[[service_pb2.ModelInferRequest, Callable[[], None]], "Cancel | None"]

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """engine: the Triton model that grants leases. call: makes the request for a lease's id."""

    engine: str
    call: Callable[[str], service_pb2.ModelInferRequest]


@dataclass(slots=True)
class _Lease:
    """One engine's. cancel: ends its call; None while there is no call."""

    id: str
    streams: int = 0
    cancel: Cancel | None = None
    retry_at: float = 0.0
    timer: asyncio.TimerHandle | None = None


class Leases:
    """The leases of one connection.

    hold: sends a request, calls back when its call has ended, and returns a function that cancels
        it; None if the connection has no room for a call.
    """

    def __init__(self, hold: Hold, *, linger_s: float = LINGER_S, retry_s: float = RETRY_S) -> None:
        self._hold = hold
        self._linger_s = linger_s
        self._retry_s = retry_s
        self._loop = asyncio.get_running_loop()
        self._leases: dict[str, _Lease] = {}  # by engine
        self.calls = 0  # open ones

    def enter(self, terms: LeaseTerms) -> str:
        """Called when a stream begins. Returns the id of its lease."""
        lease = self._leases.get(terms.engine)
        if lease is None:
            lease = self._leases[terms.engine] = _Lease(_new_id())
        lease.streams += 1
        if lease.timer is not None:
            lease.timer.cancel()
            lease.timer = None
        if lease.cancel is None and self._loop.time() >= lease.retry_at:
            lease.cancel = self._hold(terms.call(lease.id), lambda: self._lost(lease))
            self.calls += lease.cancel is not None
        return lease.id

    def leave(self, terms: LeaseTerms) -> None:
        """Called when a stream has ended."""
        lease = self._leases.get(terms.engine)
        if lease is None:  # closed
            return
        lease.streams -= 1
        if not lease.streams:
            lease.timer = self._loop.call_later(self._linger_s, self._drop, terms.engine)

    def close(self) -> None:
        """Ends all calls."""
        for engine in list(self._leases):
            self._drop(engine)

    def _drop(self, engine: str) -> None:
        lease = self._leases.pop(engine)
        if lease.timer is not None:
            lease.timer.cancel()
        if lease.cancel is not None:
            cancel, lease.cancel = lease.cancel, None
            self.calls -= 1
            cancel()

    def _lost(self, lease: _Lease) -> None:
        """The engine may regard the id as expired, so later streams name a new one."""
        if lease.cancel is None:  # dropped on purpose
            return
        self.calls -= 1
        lease.cancel, lease.id = None, _new_id()
        lease.retry_at = self._loop.time() + self._retry_s


def _new_id() -> str:
    return f"lease-{uuid4().hex}"  # cannot be guessed by other clients


def log_refusal(message: bytes) -> None:
    """Logs the one message that a lease's call may receive: why the engine refused it."""
    try:
        reason = service_pb2.ModelStreamInferResponse.FromString(message).error_message
    except DecodeError as error:
        reason = str(error)
    if reason:
        logger.warning(
            "an engine refused a lease",
            reason=reason,
            advice="build its models with this release; streams of a dead proxy end at their "
            "deadline until then",
        )
