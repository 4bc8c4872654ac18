"""`python -m tests.long.fuzz [seconds] [target]`: every target in turn, other texts each time.

A text that breaks a target is made small, printed, and ends the run with an error.
"""

from __future__ import annotations

import argparse
import random
import time

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.long.fuzz.targets import Target, every_target

EXAMPLES_A_TURN = 50
COST_EXAMPLES_A_TURN = 10  # each measures a quarter of a megabyte, at least once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=600.0)
    parser.add_argument("target", nargs="?", default="", help="a part of its name")
    given_ = parser.parse_args()
    targets = {name: one for name, one in every_target().items() if given_.target in name}
    if not targets:
        parser.error(f"no target's name has {given_.target!r} in it")
    counts = dict.fromkeys(targets, 0)
    ends_at = time.monotonic() + given_.seconds
    while time.monotonic() < ends_at:
        for name, target in targets.items():
            counts[name] += _turn(name, target)
    told = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(f"{sum(counts.values())} texts, nothing found: {told}")  # noqa: T201  # a command's output


def _turn(name: str, target: Target) -> int:
    """Returns how many texts were tried."""
    tried = 0

    @seed(random.getrandbits(64))
    @settings(
        max_examples=COST_EXAMPLES_A_TURN if name == "cost" else EXAMPLES_A_TURN,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal tried
        tried += 1
        target(data)

    try:
        run()
    except BaseException as error:
        error.add_note(f"target: {name}")
        raise
    return tried


main()
