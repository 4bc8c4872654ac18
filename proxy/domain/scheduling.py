"""The port to the fair queue: when an engine stream may begin, and what it has used since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

MOST_TENANTS_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One engine stream that wants to run."""

    queue: str  # whose rows it needs, such as `pool/Triton model`
    tenant: str  # who is charged
    weight: float = 1.0  # of the tenant's share
    priority: int = 0  # its class; a higher one goes first
    prompt_tokens: int = 0  # those that are probably not cached
    prompt_bytes: int = 0  # of its text, ids and images
    # How long it waits at most, 0 not at all; None for the queue's own limit.
    patience_s: float | None = None
    # It lost its engine or its row after its first token: it goes to the front of its tenant's
    # queue, no bound refuses it, and its patience does not count.
    has_begun: bool = False
    may_yield: bool = False  # it can be stopped, and continued later
    engine_takes_priority: bool = False  # a stream that took a row over does not wait in the engine


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one that waits. position: 1 is next. wait_s: probably; None where nobody can say."""

    position: int
    wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState:
    """The streams of one tenant in one queue, in all its classes."""

    tenant: str
    weight: float
    running: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue as operators see it. capacity: None: no bound; 0: no endpoint serves the model.

    tenants: those with the most streams, as many as were asked for. tenants_in_all: those that run
    or wait, where any were asked for.
    """

    queue: str
    capacity: int | None
    running: int
    waiting: int
    tenants: tuple[TenantState, ...] = ()
    tenants_in_all: int = 0


class Permit(Protocol):
    """The right of one engine stream to run.

    took_over: it runs instead of another stream, which was told to stop. The engine should not let
    it wait behind those that it has already.
    """

    @property
    def took_over(self) -> bool: ...

    def see_prompt(self, uncached_tokens: int) -> None:
        """The first token came, so that the stream has a row of the engine. uncached_tokens: what
        the engine has computed before it, in place of the estimate.
        """
        ...

    def meter(self, tokens: Callable[[], int]) -> None:
        """tokens: how many the stream has generated. Read a few times a second and at the end, so
        that a token costs nothing.
        """
        ...

    def release(self) -> None:
        """The stream has ended, and its last tokens are charged. A second call does nothing."""
        ...


class Scheduler(Protocol):
    """Entered before the first request, left after the last."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def acquire(
        self,
        ticket: Ticket,
        *,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> Permit:
        """Waits for its turn. Where a row is free it returns without a pause.

        Args:
            moved: called while it waits, when its position changes, once a second at most.
            preempted: called after it was granted, once at most: its row is needed for a higher
                class, or for a tenant with less service. Its holder stops the stream soon, and
                releases the permit.

        Raises:
            RateLimited: the queue is full, or its patience is over; with a true `retry_after_s`.
        """
        ...

    def set_capacity(self, queue: str, streams: int | None, *, spare: int = 0) -> None:
        """How many streams may run at once from now on; None for no bound, which is the default;
        0: no endpoint serves the model, and requests are held. spare: how many of them are beyond
        the rows, and wait in the engine.

        Fewer than run now: nothing is stopped.
        """
        ...

    def states(self, *, tenants: int = 0) -> tuple[QueueState, ...]:
        """Every queue that has a capacity or streams, by name.

        tenants: how many of each queue to list; all of them are looked at.
        """
        ...


class FreeScheduler:
    """Nobody waits: the scheduler where none is wanted."""

    async def __aenter__(self) -> object:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def acquire(
        self,
        ticket: Ticket,
        *,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> Permit:
        return FREE_PERMIT

    def set_capacity(self, queue: str, streams: int | None, *, spare: int = 0) -> None:
        pass

    def states(self, *, tenants: int = 0) -> tuple[QueueState, ...]:
        return ()


class FreePermit:
    took_over = False

    def see_prompt(self, uncached_tokens: int) -> None:
        pass

    def meter(self, tokens: Callable[[], int]) -> None:
        pass

    def release(self) -> None:
        pass


FREE_PERMIT = FreePermit()
