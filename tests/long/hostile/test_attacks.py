"""No attack of the catalogue stops or slows down a bystander, or takes much memory."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.long.hostile import trial
from tests.long.hostile.arena import Arena
from tests.long.hostile.attack import Attack
from tests.long.hostile.catalogue import EVERY

pytestmark = pytest.mark.xdist_group("hostile")  # their stack, which the soak has too
LIMIT_MB = 1_500
TRIES = 3  # a busy machine is at fault at times, an attack that does harm each time
BUSY_TRIES = 20  # more of them, after which the bystander had gaps with no attack beside it
TIMEOUT_S = 60  # of each answer: a busy machine is slow, and that alone is no fault
# Attacks with a bystander on the engine come last: that stream takes CPU itself.
IN_ORDER = sorted(EVERY, key=lambda attack: attack.is_on_engine)


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with Arena(limit_mb=LIMIT_MB, guard_mb=LIMIT_MB, timeout_s=TIMEOUT_S) as made:
        yield made


# As slow as an attack that waits for its answer: shows what the machine alone does to a stream.
NOTHING = Attack("nothing", lambda _: time.sleep(1) or [], cpu_s=math.inf)


def tried(arena: Arena, attack: Attack) -> list[str]:
    faults = trial.run(attack, arena.target, arena.ready_for(attack)).faults
    return faults if arena.is_alive else [*faults, "the proxy was ended"]


def is_machine_busy(arena: Arena, attack: Attack) -> bool:
    nothing = replace(NOTHING, is_on_engine=attack.is_on_engine)
    return bool(trial.run(nothing, arena.target, arena.ready_for(nothing)).faults)


def faults_of(arena: Arena, attack: Attack) -> list[str]:
    """Those of its last try: none, as soon as one try goes well."""
    busy = harmful = 0
    while faults := tried(arena, attack):
        if busy < BUSY_TRIES and is_machine_busy(arena, attack):
            busy += 1
        elif (harmful := harmful + 1) == TRIES:
            break
    return faults


@pytest.mark.parametrize("attack", IN_ORDER, ids=lambda attack: attack.name)
def test_it_harms_nobody(arena, attack):
    faults = faults_of(arena, attack)
    assert not faults, f"{attack.name}: {'; '.join(faults)}"
