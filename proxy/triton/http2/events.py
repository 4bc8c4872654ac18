"""What happened on a connection, in order."""

from __future__ import annotations

from typing import NamedTuple

from triton_openai.proxy.triton.http2.status import Status


class MessageArrived(NamedTuple):
    """`Connection.took` is to be called when somebody has read it."""

    stream: int
    message: bytes


class CallEnded(NamedTuple):
    stream: int
    status: Status


class CallRefused(NamedTuple):
    """The peer has not begun with it: it may be made again, elsewhere."""

    stream: int
    reason: str


class Changed(NamedTuple):
    """Whether and how many calls may be opened: look at `is_closed` and `has_room`."""


Event = MessageArrived | CallEnded | CallRefused | Changed
