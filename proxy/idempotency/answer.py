"""An answer that several requests may read: its head, its parts, and why it cannot be read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import orjson

EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """headers: names in lower case. request_id: of the request that generated the answer. route:
    its path in the application, for metrics; "" if no route took it. own_headers: of the first
    response only: they are neither kept nor sent to other proxies.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    request_id: str
    route: str
    own_headers: tuple[tuple[str, str], ...] = ()

    @property
    def has_events(self) -> bool:
        """Whether it is a stream of numbered events."""
        kinds = (value for name, value in self.headers if name == "content-type")
        return next(kinds, "").startswith(EVENT_STREAM)

    def as_json(self) -> bytes:
        return orjson.dumps([self.status, self.headers, self.request_id, self.route])

    @classmethod
    def of_json(cls, data: bytes) -> Head:
        status, headers, request_id, route = orjson.loads(data)
        return cls(
            status=status,
            headers=tuple((name, value) for name, value in headers),
            request_id=request_id,
            route=route,
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """A comment of a live stream: sent to those who wait for the next event, and not kept."""

    data: bytes


class Outcome(str, Enum):
    """How a request with a key got its answer. Also the label of the metric."""

    GENERATED = "generated"
    JOINED = "joined"
    REPLAYED = "replayed"


class OpenAnswer(Protocol):
    """An answer that one request reads. `aclose` must be called, however reading ends."""

    @property
    def outcome(self) -> Outcome: ...

    async def head(self) -> Head:
        """Waits until the answer begins.

        Raises:
            JoinRefused, AnswerLost.
        """
        ...

    def parts(self) -> AsyncGenerator[bytes | Notice, None]:
        """What follows the last part that was taken.

        Raises:
            AnswerLost: the answer ends before its end.
        """
        ...

    def shut_down(self) -> bool:
        """Ends a generation of this process, which writes its error; False if there is none."""
        ...

    async def aclose(self) -> None: ...


class Reason(str, Enum):
    """Why a request with a key gets no answer."""

    OTHER_BODY = "other_body"
    NOT_KEPT = "not_kept"  # the events that the client asks for
    UNKNOWN_EVENT = "unknown_event"
    NOT_EVENTS = "not_events"
    TOO_LARGE = "too_large"  # to be joined from its beginning
    TOO_MANY_READERS = "too_many_readers"


class JoinRefused(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class AnswerLost(Exception):
    """Whoever generates the answer has ended, or the reader was too slow to get all of it."""


class RecordsUnavailable(Exception):
    """The records cannot be read or written. The message is for the log."""


def check_resumption(request_after: int, head: Head, known: int | None) -> None:
    """known: how many events there are so far; None if that is not known.

    Raises:
        JoinRefused: the client cannot have received the event that it names.
    """
    if not request_after:
        return
    if not head.has_events:
        raise JoinRefused(Reason.NOT_EVENTS)
    if known is not None and request_after > known:
        raise JoinRefused(Reason.UNKNOWN_EVENT)
