"""What it costs to choose an endpoint, and to hash prompts, on the event loop.

    .venv/bin/python tests/bench/pool_choice.py

Prints the median and the 90th percentile, in microseconds, of repeated runs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from proxy.pools.candidate import Candidate, Candidates
from proxy.pools.choice import Chooser, Policy, RoutedRequest
from proxy.pools.prefix_index import PrefixIndex, prompt_blocks

ENDPOINTS = 100
RUNS, CALLS = 200, 50


def pool(policy: Policy) -> tuple[Chooser, Candidates]:
    """Endpoints of 8 rows with different work each."""
    index, numbers = PrefixIndex(), random.Random(1)
    members = []
    for number in range(ENDPOINTS):
        member = Candidate(f"10.0.0.{number}:8001", bit=index.add_endpoint(), rows=8)
        for _ in range(numbers.randrange(6)):
            member.streams += 1
            member.tokens += numbers.randrange(2_000) + 256
        members.append(member)
    chooser = Chooser(policy, clock=time.monotonic, random=numbers, prefixes=index)
    return chooser, Candidates(members)


def requests(chooser: Chooser, candidates: Candidates) -> dict[str, RoutedRequest]:
    """By what the endpoints have of their prompt."""
    system, text = "s" * 4_096, "t" * 200_000
    found = {}
    for name, holders in (("no holder", 0), ("one holder", 1), ("50 holders", 50), ("all", 100)):
        prompt = f"{name} {system}"
        request = RoutedRequest(1_000, prompt_blocks(prompt, model="m"))
        for member in candidates.members[:holders]:
            chooser.sent(member, request)
        found[f"4 kB, {name}"] = request
    for depth, member in enumerate(candidates.members):
        chooser.sent(member, RoutedRequest(1, prompt_blocks(text[: 1_000 * depth], model="m")))
    found["200 kB, every endpoint another part of it"] = RoutedRequest(
        50_000, prompt_blocks(text, model="m")
    )
    return found


def measure(call: Callable[[], object], calls: int = CALLS) -> str:
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - began) / calls * 1e6)
    return f"{statistics.median(times):8.2f} {statistics.quantiles(times, n=10)[-1]:8.2f}"


def main() -> None:
    for policy in Policy:
        chooser, candidates = pool(policy)
        for name, request in requests(chooser, candidates).items():
            if policy is Policy.PREFIX or name == "4 kB, no holder":
                result = measure(lambda c=chooser, s=candidates, r=request: c.choose(s, r))
                print(f"{result}  {policy.value}: {name}")  # noqa: T201  it is a report
    chooser, candidates = pool(Policy.PREFIX)
    for name, prompt in {
        "4 kB of text": "x" * 4_096,
        "2 MB of ASCII": "x" * 2_000_000,
        "2 MB of emoji": "\N{GRINNING FACE}" * 500_000,
        "500,000 ids": tuple(range(500_000)),
    }.items():
        hashed = measure(lambda p=prompt: prompt_blocks(p, model="m"), 3)
        print(f"{hashed}  hash {name}")  # noqa: T201
        request = RoutedRequest(1, prompt_blocks(prompt, model="m"))
        recorded = measure(lambda r=request: chooser.sent(candidates.members[0], r), 3)
        print(f"{recorded}  record {name}")  # noqa: T201


if __name__ == "__main__":
    main()
