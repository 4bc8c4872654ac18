"""`python -m tests.long.hostile.siege [URL]`: honest streams while the whole catalogue is sent.

Prints what the honest streams saw, with --baseline beside a run without attack, and the memory of
the proxies and of tritonserver before, in the middle and at the end. Honest callers come from
127.0.0.1, attackers from 127.0.0.2 and a process of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import random
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from tests.long.hostile import processes, stand
from tests.long.hostile.attack import Attack, Target
from tests.long.hostile.bystander import Stream
from tests.long.hostile.caller import allow_many_connections
from tests.long.hostile.catalogue import EVERY
from tests.long.hostile.processes import Processes

HONEST, ATTACKER = "127.0.0.1", "127.0.0.2"
AT_ONCE = 64  # attacks; where all of them wait for answers, the rate is not reached
SHARE_AT_MOST = 5.0  # seconds of the rate that one attack may take
SETTLE_S = 10.0  # before memory is read last


def attack(target: Target, rate: float, seconds: float, seed: int) -> None:
    """All kinds in random order, over and over. One of many requests takes as many turns."""
    allow_many_connections()
    chance, free, order = random.Random(seed), threading.Semaphore(AT_ONCE), list[Attack]()
    allowed = [one for one in EVERY if one.requests <= SHARE_AT_MOST * rate]

    def send(one: Attack) -> None:
        with contextlib.suppress(OSError):
            one.send(target)
        free.release()

    began = due = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while due < began + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            order = order or chance.sample(allowed, len(allowed))
            one = order.pop()
            free.acquire()
            pool.submit(send, one)
            due = max(due + one.requests / rate, time.monotonic() - 1)


def figures(streams: Sequence[Stream], seconds: float) -> dict[str, Any]:
    """Of the honest streams, which begin anew by themselves. A refusal is no failure."""
    ends = [why for stream in streams for _, why in stream.ends]
    refused = [why for why in ends if why in ("status 429", "status 503")]
    failures = [why for why in ends if why != "done" and why not in refused]
    arrivals = [list(stream.arrivals) for stream in streams]
    gaps = sorted(
        1000 * (after - before)
        for each in arrivals
        for (before, _), (after, is_first) in pairwise(each)
        if not is_first
    )
    return {
        "finished": ends.count("done"),
        "refused": len(refused),
        "failed": len(failures),
        "events_per_s": round(sum(map(len, arrivals)) / seconds, 1),
        "median_gap_ms": round(gaps[len(gaps) // 2], 1) if gaps else None,
        "p99_gap_ms": round(gaps[int(len(gaps) * 0.99)], 1) if gaps else None,
        "largest_gap_ms": round(gaps[-1], 1) if gaps else None,
        "failures": failures[:10],
    }


def besieged(given: argparse.Namespace, target: Target, watched: Processes, rate: float) -> Any:
    """With attackers unless the rate is 0."""

    def memory_mb() -> list[int]:
        return [processes.tree_rss(pids) // 1_000_000 for pids in (watched.proxies, watched.triton)]

    body = {
        "model": target.steady,
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": given.tokens,
        "stream": True,
    }
    memory = [memory_mb()]
    content, honest = json.dumps(body).encode(), replace(target, source=HONEST)
    streams = [Stream(honest, content) for _ in range(given.streams)]
    attackers = multiprocessing.get_context("spawn").Process(
        target=attack, args=(replace(target, source=ATTACKER), rate, given.seconds, given.seed)
    )
    if rate:
        attackers.start()
    time.sleep(given.seconds / 2)
    memory.append(memory_mb())
    time.sleep(given.seconds / 2)
    found = figures(streams, given.seconds)
    for stream in streams:
        stream.close()
    if rate:
        attackers.join()
    time.sleep(SETTLE_S)
    memory.append(memory_mb())
    return {**found, "is_alive": watched.are_alive, "memory_mb": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="a server on this machine; none: a stack of its own")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rate", type=float, default=20, help="requests of attackers a second")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=300, help="of each honest stream")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--baseline", action="store_true", help="the same without attack, first")
    given = parser.parse_args()
    with contextlib.ExitStack() as ends:
        if given.url:
            parts = urlsplit(given.url)
            host, port = parts.hostname or "127.0.0.1", parts.port or 80
        else:
            host, port = "127.0.0.1", ends.enter_context(stand.running()).port
        target, watched = Target(host=host, port=port), processes.of_port(port)
        if given.baseline:
            print("baseline", json.dumps(besieged(given, target, watched, 0), indent=2))  # noqa: T201
        found = besieged(given, target, watched, given.rate)
    print("siege", json.dumps(found, indent=2))  # noqa: T201  # a command's output
    sys.exit(bool(found["failed"]) or not found["is_alive"])


if __name__ == "__main__":
    main()
