"""Puts each fault of the catalogue into a copy of the repository, and shows which test notices it.

usage: python -m tests.mutants [WORD ...]      only mutants whose fault has one of the words

Ends with an error if one survives, or if the tests fail without a mutant.
"""

from __future__ import annotations

import sys
import time

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import ROOT, Mutant, Outcome, copy_of, first_failure


def main(words: list[str]) -> int:
    chosen = [m for m in CATALOGUE if not words or any(word in m.fault for word in words)]
    tests = tuple(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
    print(f"{len(chosen)} mutants; first, {len(tests)} tests without one", flush=True)
    with copy_of(ROOT) as copy:
        if (failed := first_failure(copy, tests)) is not None:
            print(f"{failed} fails without a mutant: nothing can be said of them")
            return 1
    outcomes = []
    for number, mutant in enumerate(chosen, 1):
        outcome = tried(mutant)
        outcomes.append(outcome)
        verdict = f"caught by {outcome.failed}" if outcome.failed else "SURVIVED"
        print(
            f"{number:2}. {mutant.fault} ({mutant.path}): {verdict}, {outcome.seconds:.0f} s",
            flush=True,
        )
    survivors = sum(outcome.failed is None for outcome in outcomes)
    print(f"{len(outcomes) - survivors} of {len(outcomes)} mutants were caught")
    return 1 if survivors else 0


def tried(mutant: Mutant) -> Outcome:
    since = time.monotonic()
    with copy_of(ROOT) as copy:
        mutant.apply(copy)
        failed = first_failure(copy, mutant.tests)
    return Outcome(mutant=mutant, failed=failed, seconds=time.monotonic() - since)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
