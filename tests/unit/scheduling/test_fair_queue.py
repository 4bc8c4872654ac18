"""The queue does what a plain list that is searched does, whatever happens in whatever order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import Ticket
from proxy.scheduling.fair_queue import FairQueue
from proxy.scheduling.places import QueueLimits
from proxy.scheduling.stream import State
from tests.doubles.queued_stream import Clock, QueuedStream
from tests.unit.scheduling.reference_queue import ReferenceQueue

tickets = st.builds(
    Ticket,
    queue=st.just("q"),
    tenant=st.sampled_from("abcd"),
    weight=st.sampled_from([0.5, 1.0, 2.0]),
    priority=st.sampled_from([0, 0, 0, 1, 5]),
    prompt_tokens=st.integers(0, 20) | st.integers(0, 40_000),
    patience_s=st.sampled_from([None, None, None, 0.0]),
    has_begun=st.sampled_from([False, False, False, True]),
    may_yield=st.booleans(),
    engine_takes_priority=st.booleans(),
)
picks = st.integers(0, 1_000)


class Queues(RuleBasedStateMachine):
    @initialize(
        waiting=st.integers(0, 8),
        per_tenant=st.integers(0, 4),
        rows=st.integers(0, 4),
        spare=st.integers(0, 2),
        fair=st.booleans(),
    )
    def begin(self, waiting: int, per_tenant: int, rows: int, spare: int, fair: bool) -> None:
        limits = QueueLimits(waiting=waiting, waiting_per_tenant=per_tenant, fair_preemption=fair)
        self.clock = Clock()
        self.log: list[tuple[str, QueuedStream]] = []
        self.queue = FairQueue(limits, self.clock)
        self.model = ReferenceQueue(limits)
        self.set_capacity(rows, spare)

    @rule(ticket=tickets)
    def enter(self, ticket: Ticket) -> None:
        stream, before = QueuedStream(ticket, self.log), len(self.log)
        try:
            self.queue.enter(stream)
        except RateLimited as error:
            stream.error = error
        displaced = [each for event, each in self.log[before:] if event == "refused"]
        is_in = self.model.enter(stream, displaced[0] if displaced else None)
        assert is_in == (stream.error is None)
        assert is_in or stream.error.retry_after_s > 0

    @rule(tenants=st.sampled_from(["ab", "ba", "aab", "bbbac"]), may_yield=st.booleans())
    def enter_several(self, tenants: str, may_yield: bool) -> None:
        """Alike but for their tenants, so that some are below their share, and may take a row."""
        for tenant in tenants:
            self.enter(Ticket(queue="q", tenant=tenant, may_yield=may_yield))

    @precondition(lambda self: self.model.waiting)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        stream = self.model.waiting[pick % len(self.model.waiting)]
        self.queue.leave(stream)
        self.model.leave(stream)

    @precondition(lambda self: self.model.running)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        stream = self.model.running[pick % len(self.model.running)]
        self.queue.release(stream)
        self.model.release(stream)

    @precondition(lambda self: self.model.running)
    @rule(pick=picks, tokens=st.integers(1, 30))
    def generate(self, pick: int, tokens: int) -> None:
        stream = self.model.running[pick % len(self.model.running)]
        if self.model._waits_in(stream.ticket.priority):
            self.model.charge(stream, 2 * tokens)
        else:
            self.clock.now += 1  # nobody has waited since, and the tokens are free
            self.queue.charge(stream, stream.tokens)
            self.clock.now += 1
        self.queue.charge(stream, stream.tokens + tokens)

    @precondition(lambda self: self.model.running)
    @rule(pick=picks, more=st.integers(0, 10))
    def see_prompt(self, pick: int, more: int) -> None:
        stream = self.model.running[pick % len(self.model.running)]
        charged = stream.prompt_charged
        self.queue.see_prompt(stream, (charged or 0) + more)
        self.model.see_prompt(stream)
        if charged:
            self.model.charge(stream, more)

    @rule()
    def rearrange(self) -> None:
        self.queue.rearrange()
        self.model.rearrange()

    @rule(rows=st.one_of(st.none(), st.integers(0, 6)), spare=st.integers(0, 2))
    def set_capacity(self, rows: int | None, spare: int) -> None:
        self.queue.set_capacity(rows, spare)
        self.model.set_capacity(rows, spare)

    @invariant()
    def the_same_streams_run_and_wait(self) -> None:
        granted = [each for event, each in self.log if event == "granted"]
        assert granted == self.model.granted
        assert [each for event, each in self.log if event == "preempted"] == self.model.preempted
        assert all(each.state is State.WAITING for each in self.model.waiting)
        assert all(each.state is State.RUNNING for each in self.model.running)
        assert self.queue.waiting == len(self.model.waiting)
        assert self.queue.running == len(self.model.running)

    @invariant()
    def positions_are_the_order_of_service(self) -> None:
        for _ in self.queue.standings():
            pass
        positions = sorted(each.position for each in self.model.waiting)
        assert positions == list(range(1, len(positions) + 1))
        if self.model.waiting:
            assert self.model.next().position == 1


Queues.TestCase.settings = settings(stateful_step_count=60, deadline=None)
test_queues = Queues.TestCase
