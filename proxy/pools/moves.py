"""Moves the streams of an endpoint that drains to other endpoints. Called by its pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.domain.errors import EndpointDrains
from proxy.domain.model import ModelFacts
from proxy.pools.endpoint import Endpoint
from proxy.pools.variants import Variant

AT_ONCE = 16  # in one turn of the event loop: each of them then finds an endpoint


async def move(endpoint: Endpoint, variant: Callable[[ModelFacts], Variant | None]) -> None:
    """Interrupts the streams that another endpoint can continue now.

    Args:
        variant: the endpoints that get streams for a build. One that drains is not among them.
    """
    fired = 0
    for interrupt, facts in list(endpoint.movable.items()):
        if interrupt.error is not None or variant(facts) is None:
            continue
        error = EndpointDrains("The server of this answer is being drained. Send it again.")
        error.endpoint = endpoint.name
        interrupt.fire(error)
        fired += 1
        if fired % AT_ONCE == 0:
            await asyncio.sleep(0)
