"""What workers and the parent of their queues say to each other, in frames of `ledger.wire`.

A stream has a number that its worker gave it. Worker to parent:

    ENTER number, fields of the ticket     it wants to run
    LEAVE number                           its caller is gone, whether it waits or runs
    CHARGE [[number, tokens, prompt], ...] what streams have generated, a few times a second, and
                                           the length of their prompt once the engine has said it
    RELEASE number, tokens, prompt         it has ended
    CAPACITY queue, streams, spare         streams: null without bound
    STATES number, tenants                 how its queues are; the number is of the question

Parent to worker:

    GRANTED number, whether it took over a row
    REFUSED number, message, retry_after_s
    MOVED [[number, position, wait_s], ...]
    PREEMPTED number
    STATE number, fields of a QueueState   one for each queue; at the end one without fields
"""

from __future__ import annotations

from triton_openai.proxy.domain.scheduling import QueueState, TenantState, Ticket
from triton_openai.proxy.ledger.wire import Message

ENTER, LEAVE, CHARGE, RELEASE, CAPACITY, STATES = range(6)
GRANTED, REFUSED, MOVED, PREEMPTED, STATE = range(5)
AT_ONCE = 500  # streams in one message


def packed(ticket: Ticket) -> tuple[object, ...]:
    return (
        *(ticket.queue, ticket.tenant, ticket.weight, ticket.priority, ticket.prompt_tokens),
        *(ticket.patience_s, ticket.has_begun, ticket.may_yield, ticket.engine_takes_priority),
    )


def ticket_of(values: Message) -> Ticket:
    queue, tenant, weight, priority, prompt_tokens, patience_s, *flags = values
    has_begun, may_yield, engine_takes_priority = flags
    return Ticket(
        queue=queue,
        tenant=tenant,
        weight=weight,
        priority=priority,
        prompt_tokens=prompt_tokens,
        patience_s=patience_s,
        has_begun=has_begun,
        may_yield=may_yield,
        engine_takes_priority=engine_takes_priority,
    )


def packed_state(state: QueueState) -> tuple[object, ...]:
    tenants = [(one.tenant, one.weight, one.running, one.waiting) for one in state.tenants]
    return (
        *(state.queue, state.capacity, state.running, state.waiting),
        *(tenants, state.tenants_in_all),
    )


def state_of(values: Message) -> QueueState:
    queue, capacity, running, waiting, tenants, in_all = values
    listed = [
        TenantState(tenant=tenant, weight=weight, running=runs, waiting=waits)
        for tenant, weight, runs, waits in tenants
    ]
    return QueueState(
        queue=queue,
        capacity=capacity,
        running=running,
        waiting=waiting,
        tenants=tuple(listed),
        tenants_in_all=in_all,
    )
