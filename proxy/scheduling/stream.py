"""One engine stream in a queue, from the time it wants to run until it ends."""

from __future__ import annotations

from enum import Enum, auto

from proxy.domain.engine import LOWEST_PRIORITY
from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import Standing, Ticket

START_TOKENS_A_TOKEN = 16  # prefill costs about a hundredth of decode, so starts about 5 %


class State(Enum):
    NEW = auto()
    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


class Stream:
    """The adapters implement its methods."""

    __slots__ = (
        "charged_at",
        "deadline",
        "entered_at",
        "is_yielding",
        "number",
        "position",
        "prompt_charged",
        "start_tokens",
        "state",
        "ticket",
        "tokens",
        "took_over",
    )

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.state = State.NEW
        self.number = 0  # streams of one tenant and class are served in its order
        self.entered_at = 0.0
        self.deadline = 0.0
        self.tokens = 0  # generated, as far as they are charged
        self.charged_at = 0.0
        self.prompt_charged: int | None = None  # tokens; None while nobody waited: it is free then
        self.start_tokens = ticket.prompt_tokens  # that the engine computed before its first token
        self.is_yielding = False  # it has to make room
        self.took_over = False  # another stream made room for it
        self.position = 0  # the last one that was reported

    @property
    def can_yield(self) -> bool:
        """Whether it has generated enough for what its start has cost. A stream that was stopped
        before generates one token at least, so that it comes to its end.
        """
        ticket = self.ticket
        if ticket.priority == LOWEST_PRIORITY:  # it fills rows that are idle
            return ticket.may_yield
        least = max(self.start_tokens // START_TOKENS_A_TOKEN, ticket.has_begun)
        return ticket.may_yield and (least == 0 or self.generated() >= least)

    def generated(self) -> int:
        """Tokens."""
        return self.tokens

    def granted(self) -> None:
        raise NotImplementedError

    def refused(self, error: RateLimited) -> None:
        raise NotImplementedError

    def moved(self, standing: Standing) -> None:
        raise NotImplementedError

    def preempted(self) -> None:
        raise NotImplementedError
