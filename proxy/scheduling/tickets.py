"""Checks tickets before they enter a queue."""

from __future__ import annotations

import math

from triton_openai.proxy.domain.scheduling import Ticket

LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6


def check(ticket: Ticket) -> None:
    """Raises ValueError for a patience that is no number, and for a weight with which counters
    lose their precision.
    """
    if not LEAST_WEIGHT <= ticket.weight <= MOST_WEIGHT:
        raise ValueError(
            f"the weight of tenant {ticket.tenant!r} is {ticket.weight}: it must be from "
            f"{LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
        )
    if ticket.patience_s is not None and math.isnan(ticket.patience_s):
        raise ValueError("patience_s is not a number")
