"""A caller whose stream must keep its pace, and whose small requests are answered soon, in a
process of its own; and what the server costs.

usage: python -m tests.long.hostile.bystander < plan.json-line   (started by watch.Watch)

Reads {"since": t, "settles": true} lines (CLOCK_MONOTONIC) and answers each with the figures from
then until now; where it settles, until a small request that begins now has its answer.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from tests.long.hostile import processes
from tests.long.hostile.attack import Target
from tests.long.hostile.caller import connected, exchange, message, status_of

SAMPLE_S = 0.01
KEPT_S = 200.0
RETRY_S = 0.1
SILENCE_S = 60.0
ASK_EVERY_S = 0.2
SETTLE_S = 0.4  # a small request that takes longer is judged while it is open
ANSWERS = {200, 429, 503}  # a flood may use up what its address, which is ours too, may have


@dataclass(frozen=True, slots=True)
class Sample:
    """At a moment: the loop thread's times, the machine's pressure, memory of the processes."""

    at: float
    ran_s: float
    waited_s: float
    engine_s: float  # CPU of the engine's process
    pressure_s: float
    late_s: float  # this thread's own wake-up: what the machine allows
    proxy_rss: int
    triton_rss: int


class Sampler:
    """Looks at the server's processes every few milliseconds, in a thread."""

    def __init__(
        self, watched: processes.Processes, guard_bytes: int | None, engine: int | None
    ) -> None:
        self._watched = watched
        self._engine = engine
        self._guard_bytes = guard_bytes
        self._triton_rss = 0
        self.samples: deque[Sample] = deque(maxlen=int(KEPT_S / SAMPLE_S))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        due, count = time.monotonic(), 0
        while True:
            due = max(due + SAMPLE_S, time.monotonic() - SAMPLE_S)
            time.sleep(max(0.0, due - time.monotonic()))
            if count % 20 == 0:
                self._triton_rss = processes.tree_rss(self._watched.triton)
            count += 1
            self.samples.append(self._sample(due))
            self._guard(self.samples[-1].proxy_rss)

    def _sample(self, due: float) -> Sample:
        now = time.monotonic()
        times = [processes.loop_times(pid) for pid in self._watched.proxies]
        return Sample(
            at=now,
            ran_s=max(ran for ran, _ in times),
            waited_s=max(waited for _, waited in times),
            engine_s=processes.cpu_s(self._engine) if self._engine else 0.0,
            pressure_s=processes.pressure_s(),
            late_s=now - due,
            proxy_rss=processes.tree_rss(self._watched.proxies),
            triton_rss=self._triton_rss,
        )

    def _guard(self, rss: int) -> None:
        if self._guard_bytes is not None and rss > self._guard_bytes:
            for pid in self._watched.proxies:
                os.kill(pid, signal.SIGKILL)

    def between(self, start: float, end: float) -> list[Sample]:
        """With the last one before and the first one after."""
        known = list(self.samples)  # at once: the sampling thread appends to it
        inside = [sample for sample in known if start - 0.05 <= sample.at <= end + 0.05]
        return inside or [known[-1]]

    def gap(self, start: float, end: float) -> dict[str, float]:
        """Between two tokens, in seconds. waited_s: of the event loop's thread meanwhile.

        ran_s: its CPU time, or the engine's if that is more. machine_s: what the machine took.
        """
        inside = self.between(start, end)
        first, last = inside[0], inside[-1]
        machine_s = max(last.pressure_s - first.pressure_s, max(sample.late_s for sample in inside))
        return {
            "length_s": end - start,
            "ran_s": max(last.ran_s - first.ran_s, last.engine_s - first.engine_s),
            "waited_s": last.waited_s - first.waited_s,
            "machine_s": min(machine_s, end - start),
        }


class Stream:
    """A stream that begins anew whenever it ends, read by a thread."""

    def __init__(self, target: Target, body: bytes) -> None:
        self._target = target
        self._request = message(target, body)
        self.arrivals: deque[tuple[float, bool]] = deque(maxlen=200_000)  # moment, is it the first
        self.ends: deque[tuple[float, str]] = deque(maxlen=10_000)
        self._is_closed = False
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Begins no stream any more."""
        self._is_closed = True

    def _run(self) -> None:
        while not self._is_closed:
            try:
                with connected(self._target) as sock:
                    why = self._read(sock)
            except OSError as error:
                why = f"{type(error).__name__}: {error}"
            self.ends.append((time.monotonic(), why))
            if why != "done":
                time.sleep(RETRY_S)

    def _read(self, sock: socket.socket) -> str:
        sock.settimeout(SILENCE_S)
        sock.sendall(self._request)
        tail, is_first = b"", True
        while part := sock.recv(65_536):
            if is_first and (status := status_of(part)) != 200:
                return f"status {status}"
            if b'"content":"' in part or b'"text":"' in part:
                self.arrivals.append((time.monotonic(), is_first))
                is_first = False
            tail = (tail + part)[-2_000:]
            if b'"error"' in part:
                return f"error event: {part[:300]!r}"
        return "done" if b"[DONE]" in tail else "cut off"


class Requests:
    """The same small request over and over, in a thread."""

    def __init__(self, target: Target, body: bytes) -> None:
        self._target = target
        self._request = message(target, body)
        self.answers: deque[tuple[float, float, int]] = deque(maxlen=10_000)  # begin, end, status
        self.open_since: float | None = None
        self._is_due, self._is_answered = threading.Event(), threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.open_since = began = time.monotonic()
            status = exchange(self._target, self._request).status
            self.answers.append((began, time.monotonic(), status))
            self.open_since = None
            self._is_answered.set()
            self._is_due.wait(ASK_EVERY_S)
            self._is_due.clear()

    def settle(self) -> None:
        """Waits until one that has begun after this call is answered."""
        now = time.monotonic()
        ends_at = now + SETTLE_S
        while time.monotonic() < ends_at:
            self._is_answered.clear()
            if any(began > now for began, *_ in list(self.answers)[-3:]):
                return
            self._is_due.set()
            self._is_answered.wait(ends_at - time.monotonic())

    def waits(self, since: float, now: float) -> list[tuple[float, float]]:
        """Begin and end of those that were answered with 200; the last may still wait."""
        found = [(began, end) for began, end, status in list(self.answers) if status == 200]
        if (began := self.open_since) is not None:
            found.append((began, now))
        return [(max(began, since), end) for began, end in found if end > since]

    def wrong(self, since: float) -> list[int]:
        """Statuses that no attack may cause."""
        return [one for _, end, one in list(self.answers) if end > since and one not in ANSWERS]


def figures(sampler: Sampler, stream: Stream, requests: Requests, since: float) -> dict[str, Any]:
    """From then until now. cpu_s: of the event loop. *_growth: to the peak, in bytes.

    machine_s: in which some process of the machine waited for a CPU. wait: the longest of a small
    request.
    """
    now = time.monotonic()
    inside = sampler.between(since, now)
    first = inside[0]
    gaps = [sampler.gap(start, end) for start, end in long_gaps(stream, since, now)]
    return {
        "tokens": sum(at >= since for at, _ in list(stream.arrivals)),
        "machine_s": inside[-1].pressure_s - first.pressure_s,
        "gap": max(gaps, key=own_gap_s, default=sampler.gap(now, now)),
        "wait": max(
            (sampler.gap(*each) for each in requests.waits(since, now)),
            key=own_gap_s,
            default=sampler.gap(now, now),
        ),
        "wrong": requests.wrong(since),
        "cpu_s": inside[-1].ran_s - first.ran_s,
        "proxy_growth": max(sample.proxy_rss for sample in inside) - first.proxy_rss,
        "triton_growth": max(sample.triton_rss for sample in inside) - first.triton_rss,
        "ends": [why for at, why in list(stream.ends) if at >= since and why != "done"],
    }


def long_gaps(stream: Stream, since: float, now: float) -> list[tuple[float, float]]:
    """The three longest between tokens of one stream; the last token's may still be open."""
    found, before = [], None
    for at, is_first in [*list(stream.arrivals), (now, False)]:
        if before is not None and not is_first and at >= since:
            found.append((max(before, since - 0.05), at))
        before = at
    found.sort(key=lambda pair: pair[1] - pair[0])
    return found[-3:]


def own_gap_s(gap: dict[str, float]) -> float:
    """The gap without what the machine took: waiting for a CPU is not the server's doing.

    CPU time that the event loop or the engine spent in it always counts.
    """
    taken = max(gap["waited_s"], gap["machine_s"])
    return max(gap["length_s"] - taken, min(gap["ran_s"], gap["length_s"]))


def main() -> None:
    plan = json.loads(sys.stdin.readline())
    target = Target(**plan["target"])
    watched = processes.Processes(tuple(plan["proxies"]), tuple(plan["triton"]))
    sampler = Sampler(watched, plan["guard_bytes"], plan["engine"])
    stream = Stream(target, json.dumps(plan["body"]).encode())
    requests = Requests(target, json.dumps(plan["small"]).encode())
    while not sampler.samples:
        time.sleep(SAMPLE_S)
    while line := sys.stdin.readline():
        wanted = json.loads(line)
        if wanted["settles"]:
            requests.settle()
        answer = figures(sampler, stream, requests, wanted["since"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
