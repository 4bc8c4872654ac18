"""What workers and the parent of their queues say to each other, in frames of `ledger.wire`.

A stream has a number that its worker gave it. Worker to parent:

    ENTER number, fields of the ticket     it wants to run
    LEAVE number                           its caller is gone, whether it waits or runs
    CHARGE [[number, tokens, prompt], ...] what streams have generated, a few times a second, and
                                           the length of their prompt once the engine has said it
    RELEASE number, tokens, prompt         it has ended
    CAPACITY queue, streams                null without bound

Parent to worker:

    GRANTED number
    REFUSED number, message, retry_after_s
    MOVED [[number, position, wait_s], ...]
    PREEMPTED number
"""

from __future__ import annotations

from triton_openai.proxy.domain.scheduling import Ticket
from triton_openai.proxy.ledger.wire import Message

ENTER, LEAVE, CHARGE, RELEASE, CAPACITY = range(5)
GRANTED, REFUSED, MOVED, PREEMPTED = range(4)
AT_ONCE = 500  # streams in one message


def packed(ticket: Ticket) -> tuple[object, ...]:
    return (
        *(ticket.queue, ticket.tenant, ticket.weight, ticket.priority, ticket.prompt_tokens),
        *(ticket.patience_s, ticket.has_begun, ticket.may_yield),
    )


def ticket_of(values: Message) -> Ticket:
    queue, tenant, weight, priority, prompt_tokens, patience_s, has_begun, may_yield = values
    return Ticket(
        queue=queue,
        tenant=tenant,
        weight=weight,
        priority=priority,
        prompt_tokens=prompt_tokens,
        patience_s=patience_s,
        has_begun=has_begun,
        may_yield=may_yield,
    )
