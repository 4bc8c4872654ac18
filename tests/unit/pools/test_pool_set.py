"""What all pools serve together."""

from __future__ import annotations

import pytest

from proxy.domain.engine import NotReady
from tests.doubles import clock
from tests.doubles.scripted_pools import PoolStand, ScriptedTriton, checked


def away(stand: PoolStand) -> None:
    for triton in stand.tritons.values():
        triton.reason = "cannot be reached"


def drained(stand: PoolStand) -> None:
    stand.decisions.drained = frozenset(stand.tritons)


def unnamed(stand: PoolStand) -> None:
    stand.source.name()


@pytest.mark.parametrize(
    ("happens", "reason", "category"),
    [
        (away, "none of 2 .* a:1: cannot be reached", "no Triton server is ready"),
        (drained, "an operator drains it", "every Triton server is drained"),
        (unnamed, "no endpoint", "no Triton server is known"),
    ],
)
@clock.jumps
async def test_why_nothing_is_ready_names_endpoints_to_the_log_and_none_to_callers(
    happens, reason, category
):
    async with PoolStand({"a:1": ScriptedTriton(), "b:1": ScriptedTriton()}) as stand:
        happens(stand)
        await checked(2)
        with pytest.raises(NotReady, match=reason) as error:
            await stand.pools.load()
        assert error.value.category == category
