"""The engine's own counters, as Triton custom metrics on Triton's metrics port.

Triton's metrics may be touched by one thread only: with two, tritonserver 2.51 crashes (seen
under load). So values are added up here, and a thread of ours hands them on ten times a second,
which also keeps the round trip to Triton's process out of every token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

EVERY_S = 0.1


class Value:
    """A number that any thread may add to."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._lock = threading.Lock()

    def add(self, amount: float) -> None:
        with self._lock:
            self._sum += amount

    def read(self) -> float:
        with self._lock:
            return self._sum


class Counters:
    """One set a model instance; label `model` is the engine model's name."""

    def __init__(self, pb_utils: Any, model: str) -> None:
        self._families: list[Any] = []  # a family must outlive its metrics
        self._flushes: list[Callable[[], None]] = []

        def counter(name: str, description: str) -> Value:
            return self._register(pb_utils, model, "COUNTER", name, description)

        def gauge(name: str, description: str) -> Value:
            return self._register(pb_utils, model, "GAUGE", name, description)

        self.prompt_tokens = counter("engine_prompt_tokens", "Prompt tokens of admitted requests")
        self.generated_tokens = counter("engine_generated_tokens", "Tokens generated")
        self.finished = counter("engine_requests_finished", "Requests that ended by themselves")
        self.cancelled = counter("engine_requests_cancelled", "Requests ended by stop or cancel")
        self.failed = counter("engine_requests_failed", "Requests ended by an error")
        self.unfinished = gauge("engine_requests_unfinished", "Requests waiting or running")
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._hand_on, name="counters", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()

    def _register(self, pb_utils: Any, model: str, kind: str, name: str, description: str) -> Value:
        family = pb_utils.MetricFamily(
            name=name, description=description, kind=getattr(pb_utils.MetricFamily, kind)
        )
        metric, value = family.Metric(labels={"model": model}), Value()
        handed_on = 0.0

        def flush() -> None:
            nonlocal handed_on
            now = value.read()
            if now != handed_on:
                metric.increment(now - handed_on)
                handed_on = now

        self._families.append(family)
        self._flushes.append(flush)
        return value

    def _hand_on(self) -> None:
        while not self._is_closing.wait(EVERY_S):
            for flush in self._flushes:
                flush()
