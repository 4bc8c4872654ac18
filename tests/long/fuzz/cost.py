"""`python -m tests.long.fuzz.cost [seconds]`: requests that cost the event loop more than they may.

It changes requests at random, keeps the costliest of each kind for their size, and changes those
again. A request over a threshold is printed as input for a test; the run then ends with an error.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.fixtures.stack import ROOT
from tests.long.fuzz.cases import HI, Case, mutated, seeds

START_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """loop_s: of the longest step of the event loop. is_free: the limit on requests did not count
    it. is_killed: it ran over the time limit.
    """

    status: int | str
    loop_s: float
    total_s: float
    grown_bytes: int
    is_free: bool = False
    is_killed: bool = False


class CostMeter:
    """limit_s: wall time of one request; a child that takes longer is killed and replaced."""

    def __init__(self, limit_s: float = 20.0) -> None:
        self._limit_s = limit_s
        self._child: subprocess.Popen[str] | None = None

    def cost(self, case: Case) -> Cost:
        line = self._answer(case, self._limit_s if self._child else START_S + self._limit_s)
        if line:
            return Cost(**json.loads(line))
        self.close()
        limit = self._limit_s
        return Cost(status="killed", loop_s=limit, total_s=limit, grown_bytes=0, is_killed=True)

    def close(self) -> None:
        if self._child is None:
            return
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        self._child = None

    def _answer(self, case: Case, within_s: float) -> str:
        """Empty where it does not come in time, or the child has died."""
        if self._child is None:
            self._child = self._started()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(case.written() + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            return ""
        is_ready, _, _ = select.select([self._child.stdout], [], [], within_s)
        return self._child.stdout.readline() if is_ready else ""

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.long.fuzz.cost_child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


KEPT_OF_A_KIND = 4
TRIES = 3  # a busy machine is slow once, a costly request each time
OVERHEAD_BYTES = 500  # small bodies are not worth more for being smaller still


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    loop_s: float = 0.005
    grown_bytes: int = 50_000_000

    def share(self, cost: Cost) -> float:
        """Of what it may cost; over 1 is too much."""
        return max(cost.loop_s / self.loop_s, cost.grown_bytes / self.grown_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    case: Case
    cost: Cost
    rank: float  # share of the thresholds beyond the usual, for its size


class Fuzzer:
    """offenders: the costliest of each kind that is over a threshold."""

    def __init__(self, meter: CostMeter, thresholds: Thresholds, seed: int) -> None:
        self._meter = meter
        self._thresholds = thresholds
        self._chance = random.Random(seed)
        self._usual = 0.0  # share of the thresholds that a request without anything special has
        self._corpus: dict[str, list[Found]] = {}
        self.offenders: dict[str, Found] = {}
        self.tried = 0

    def run(self, seconds: float, most: int = 10**9) -> None:
        """Until the time is over, or so many requests have been tried."""
        ends_at = time.monotonic() + seconds
        plain = Case("plain", "/chat/json", {"messages": [HI]})
        self._meter.cost(plain)  # imports, and the first use of every cache
        self._usual = self._thresholds.share(self._confirmed(plain, self._meter.cost(plain)))
        for case in self._cases():
            self._try(case)
            if time.monotonic() > ends_at or self.tried >= most:
                return

    def _cases(self) -> Iterator[Case]:
        yield from seeds()
        while True:
            known = [found.case for kind in self._corpus.values() for found in kind]
            kind = self._chance.choice(list(self._corpus.values()))
            yield mutated(self._chance.choice(kind).case, known, self._chance)

    def _try(self, case: Case) -> None:
        self.tried += 1
        cost = self._meter.cost(case)
        if self._thresholds.share(cost) > 1:
            cost = self._confirmed(case, cost)
        if self._thresholds.share(cost) > 1:
            known = self.offenders.get(case.kind)
            if known is None or self._found(case, cost).rank > known.rank:
                self.offenders[case.kind] = self._found(case, cost)
        kept = [*self._corpus.get(case.kind, []), self._found(case, cost)]
        self._corpus[case.kind] = sorted(kept, key=lambda found: -found.rank)[:KEPT_OF_A_KIND]

    def _found(self, case: Case, cost: Cost) -> Found:
        size = len(case.data) + OVERHEAD_BYTES
        return Found(case=case, cost=cost, rank=(self._thresholds.share(cost) - self._usual) / size)

    def _confirmed(self, case: Case, cost: Cost) -> Cost:
        """The least of several tries. One that was killed is not waited for again."""
        if cost.is_killed:
            return cost
        costs = [cost, *(self._meter.cost(case) for _ in range(TRIES - 1))]
        return min(costs, key=self._thresholds.share)

    def top(self, count: int = 10) -> list[Found]:
        every = [found for kind in self._corpus.values() for found in kind]
        return sorted(every, key=lambda found: -found.rank)[:count]


def described(found: Found) -> str:
    cost, size = found.cost, len(found.case.data)
    grown = cost.grown_bytes / 1e6
    return (
        f"{found.case.kind:14} {size:7} bytes  {cost.loop_s * 1000:8.1f} ms  {grown:6.1f} MB  "
        f"status {cost.status}  {found.case.data[:100]!r}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=600.0)
    parser.add_argument("--seed", type=int, default=random.getrandbits(32))
    given = parser.parse_args()
    meter = CostMeter()
    fuzzer = Fuzzer(meter, Thresholds(), given.seed)
    try:
        fuzzer.run(given.seconds)
        lines = [f"{fuzzer.tried} requests (seed {given.seed}); the costliest for their size:"]
        lines += [described(found) for found in fuzzer.top()]
        for found in fuzzer.offenders.values():
            lines += [f"over the threshold: {described(found)}", f"Case(**{found.case.written()})"]
    finally:
        meter.close()
    print("\n".join(line[:4_000] for line in lines))  # noqa: T201  # a command's output
    sys.exit(bool(fuzzer.offenders))


if __name__ == "__main__":
    main()
