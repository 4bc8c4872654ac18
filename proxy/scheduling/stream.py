"""One engine stream in a queue, from the time it wants to run until it ends."""

from __future__ import annotations

from enum import Enum, auto

from triton_openai.proxy.domain.errors import RateLimited
from triton_openai.proxy.domain.scheduling import Standing, Ticket


class State(Enum):
    NEW = auto()
    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


class Stream:
    """The adapters implement what it is told.

    number: streams of one tenant and class are served in its order. tokens: generated, as far as
    they are charged. charged_at: until when. prompt_charged: tokens of the prompt; None while
    nobody waited, when a prompt costs nothing. is_yielding: it was told to make room. took_over:
    another stream made room for it. position: the last that it was told.
    """

    __slots__ = (
        *("charged_at", "deadline", "entered_at", "is_yielding", "number", "position"),
        *("prompt_charged", "state", "ticket", "tokens", "took_over"),
    )

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.state = State.NEW
        self.number = 0
        self.entered_at = 0.0
        self.deadline = 0.0
        self.tokens = 0
        self.charged_at = 0.0
        self.prompt_charged: int | None = None
        self.is_yielding = False
        self.took_over = False
        self.position = 0

    def granted(self) -> None:
        raise NotImplementedError

    def refused(self, error: RateLimited) -> None:
        raise NotImplementedError

    def moved(self, standing: Standing) -> None:
        raise NotImplementedError

    def preempted(self) -> None:
        raise NotImplementedError
