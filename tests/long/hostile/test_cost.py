"""What the attack of one request costs the event loop, measured in the CPU time of its thread.

No step holds the loop, and a refusal that costs CPU counts in its caller's limits. Unlike the time
that a bystander waits, this hardly changes while the machine does other things.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.long.fuzz.cases import Case
from tests.long.fuzz.cost import Cost, CostMeter
from tests.long.hostile.attack import Attack, Target
from tests.long.hostile.caller import Burst, encoded
from tests.long.hostile.catalogue import EVERY

TARGET = Target(host="127.0.0.1", port=1, steady="demo", pooled="demo")
MOST_BYTES = 2_000_000  # of a body: more is refused unread
LOOP_S = 0.05  # 5 ms where the machine does nothing else
FREE_S = 0.02
TRIES = 3  # the first call of a kind fills caches
BY_BODY = [
    attack
    for attack in EVERY
    if isinstance(attack.send, Burst) and attack.send.path.split("/")[1] != "metrics"
]


@pytest.fixture(scope="module")
def meter() -> Iterator[CostMeter]:
    with_limit = CostMeter()
    yield with_limit
    with_limit.close()


def fault(cost: Cost) -> str | None:
    if cost.loop_s > LOOP_S:
        return f"holds the loop for {cost.loop_s * 1000:.1f} ms"
    is_refused = isinstance(cost.status, int) and cost.status >= 400
    if is_refused and cost.is_free and cost.total_s > FREE_S:
        return f"{cost.status} costs {cost.total_s * 1000:.1f} ms, and is not charged"
    return None


def faults(meter: CostMeter, attack: Attack) -> list[str]:
    """Of each try; empty as soon as one has none."""
    found = []
    for _ in range(TRIES):
        data = encoded(attack.send.body(TARGET))
        if len(data) > MOST_BYTES:
            return []
        case = Case(attack.name, attack.send.path, None, data.decode())
        if (one := fault(meter.cost(case))) is None:
            return []
        found.append(one)
    return found


@pytest.mark.parametrize("attack", BY_BODY, ids=lambda attack: attack.name)
def test_no_request_holds_the_loop_or_is_refused_for_nothing(meter, attack):
    assert not faults(meter, attack)
