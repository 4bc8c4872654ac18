"""No attack of the catalogue stops or slows down a bystander, or takes much memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.long.hostile import trial
from tests.long.hostile.arena import Arena
from tests.long.hostile.attack import Attack
from tests.long.hostile.catalogue import EVERY

pytestmark = pytest.mark.xdist_group("hostile")  # their stack, which the soak has too
LIMIT_MB = 1_500
TRIES = 3  # a busy machine is at fault at times, an attack that does harm each time
TIMEOUT_S = 60  # of each answer: a busy machine is slow, and that alone is no fault
# Attacks with a bystander on the engine come last: that stream takes CPU itself.
IN_ORDER = sorted(EVERY, key=lambda attack: attack.is_on_engine)


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with Arena(limit_mb=LIMIT_MB, guard_mb=LIMIT_MB, timeout_s=TIMEOUT_S) as made:
        yield made


def tried(arena: Arena, attack: Attack) -> list[str]:
    faults = trial.run(attack, arena.target, arena.ready_for(attack)).faults
    return faults if arena.is_alive else [*faults, "the proxy was ended"]


@pytest.mark.parametrize("attack", IN_ORDER, ids=lambda attack: attack.name)
def test_it_harms_nobody(arena, attack):
    for _ in range(TRIES):
        if not (faults := tried(arena, attack)):
            break
    assert not faults, f"{attack.name}: {'; '.join(faults)}"
