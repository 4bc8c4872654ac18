"""One attack beside a bystander, and whether the server stood it."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.long.hostile.attack import CLOSED, SILENT, Attack, Reply, Target
from tests.long.hostile.bystander import own_gap_s
from tests.long.hostile.watch import Watch

BYSTANDER_SHARE = 0.05  # of a core: what its stream and its small requests take of the event loop
MB = 1_000_000
LONGEST_ERROR_BYTES = 8_000
# What belongs in the log, not in a caller's error.
LEAK = re.compile(
    rb"Traceback|site-packages|/(?:work|usr|home|opt|app|tmp|dev)/|\.py\b|StatusCode|"
    rb"model_repository|triton_python|shared memory|shm|ipv4:|127\.0\.0\.1:\d"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """faults: why it failed, empty where the server stood it."""

    attack: str
    statuses: dict[int, int]
    wall_s: float
    proxy_cpu_s: float
    proxy_growth_mb: float
    triton_growth_mb: float
    gap_s: float
    own_gap_s: float
    small_wait_s: float
    faults: list[str]
    sample: str


def run(attack: Attack, target: Target, watch: Watch) -> Result:
    """Sends it, and judges the answers and what the bystander saw."""
    since = time.monotonic()
    try:
        replies = attack.send(target)
    except OSError:  # nobody listens any more, or the connection is reset
        replies = [Reply(status=CLOSED)]
    sent_s = time.monotonic() - since
    # what it did may show up only after its answer
    return judged(attack, replies, sent_s, watch.figures(since, settles=True))


def judged(attack: Attack, replies: list[Reply], sent_s: float, seen: dict[str, Any]) -> Result:
    slowest = max((reply.wall_s for reply in replies), default=sent_s)
    return Result(
        attack=attack.name,
        statuses=dict(Counter(reply.status for reply in replies)),
        wall_s=round(slowest, 3),
        proxy_cpu_s=round(seen["cpu_s"], 3),
        proxy_growth_mb=round(seen["proxy_growth"] / MB, 1),
        triton_growth_mb=round(seen["triton_growth"] / MB, 1),
        gap_s=round(seen["gap"]["length_s"], 3),
        own_gap_s=round(own_gap_s(seen["gap"]), 3),
        small_wait_s=round(own_gap_s(seen["wait"]), 3),
        faults=[*_wrong_answers(attack, replies), *_costs(attack, slowest, seen)],
        sample=replies[0].body[-300:].decode(errors="replace") if replies else "",
    )


def _wrong_answers(attack: Attack, replies: list[Reply]) -> list[str]:
    faults = []
    for status, count in Counter(reply.status for reply in replies).items():
        if status not in attack.answers:
            faults.append(f"{count} x status {'none' if status == SILENT else status}")
    longest = max((len(reply.body) for reply in replies if reply.status >= 400), default=0)
    if longest > LONGEST_ERROR_BYTES:
        faults.append(f"an error of {longest} bytes: it repeats what was sent")
    leaks = {found[0] for reply in replies if (found := _leak(reply))}
    if leaks:
        faults.append(f"the error leaks {sorted(leaks)}")
    return faults


def _leak(reply: Reply) -> re.Match[bytes] | None:
    body = reply.body.partition(b"\r\n\r\n")[2]
    return LEAK.search(body) if reply.status >= 400 or b'"error"' in body else None


def _costs(attack: Attack, slowest: float, seen: dict[str, Any]) -> list[str]:
    faults = []
    if slowest - seen["machine_s"] > attack.wall_s:
        faults.append(f"the caller waited {slowest:.1f} s, {attack.wall_s:g} allowed")
    cpu_s = attack.cpu_s + BYSTANDER_SHARE * slowest
    if seen["cpu_s"] > cpu_s:
        faults.append(f"{seen['cpu_s']:.2f} s of the event loop's CPU, {cpu_s:.2f} allowed")
    if seen["proxy_growth"] > attack.growth_mb * MB:
        grown = seen["proxy_growth"] / MB
        faults.append(f"the proxy grew by {grown:.0f} MB, {attack.growth_mb:g} allowed")
    if own_gap_s(seen["gap"]) > attack.gap_s:
        faults.append(f"a gap of {own_gap_s(seen['gap']):.3f} s in the bystander's stream")
    most_s = attack.waits_s if attack.requests == 1 else max(attack.wall_s, attack.waits_s)
    if own_gap_s(seen["wait"]) > most_s:
        faults.append(f"a small request of the bystander waited {own_gap_s(seen['wait']):.3f} s")
    if seen["wrong"]:
        faults.append(f"small requests of the bystander got {sorted(set(seen['wrong']))}")
    if seen["ends"]:
        faults.append(f"the bystander's stream ended: {seen['ends'][0]}")
    return faults
