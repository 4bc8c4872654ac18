"""What happened on a connection, in order. Made by `calls` and `connection`, read by `link`."""

from __future__ import annotations

from typing import NamedTuple

from proxy.triton.http2.status import Status


class MessageArrived(NamedTuple):
    """The reader calls `Connection.message_was_read` for it."""

    stream: int
    message: bytes


class CallEnded(NamedTuple):
    stream: int
    status: Status


class CallRefused(NamedTuple):
    """The peer has not processed it: it may be made again, on another connection."""

    stream: int
    reason: str


class Changed(NamedTuple):
    """`is_closed` or `has_room` may have changed."""


Event = MessageArrived | CallEnded | CallRefused | Changed
