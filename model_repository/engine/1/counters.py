"""The engine's own numbers, as Triton custom metrics on Triton's metrics port.

Triton's metrics may be touched by one thread only: with two, tritonserver 2.51 crashes (seen
under load). So numbers are read here ten times a second by a thread of ours, which also keeps the
round trip to Triton's process out of every token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

EVERY_S = 0.1
Kind = Literal["COUNTER", "GAUGE"]


class Counters:
    """One set a model instance; label `model` is the public name, as in the proxy's metrics."""

    def __init__(self, pb_utils: Any, model: str) -> None:
        self._pb_utils = pb_utils
        self._model = model
        self._families: list[Any] = []  # a family must outlive its metrics
        self._hand_ons: list[Callable[[], None]] = []
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counters", daemon=True)

    def add(self, kind: Kind, name: str, description: str, read: Callable[[], float]) -> None:
        """A metric and where its present value comes from. Before `start` only."""
        families = self._pb_utils.MetricFamily
        family = families(name=name, description=description, kind=getattr(families, kind))
        metric, handed_on = family.Metric(labels={"model": self._model}), 0.0

        def hand_on() -> None:
            nonlocal handed_on
            value = float(read())
            if value != handed_on:
                metric.increment(value - handed_on)
                handed_on = value

        self._families.append(family)
        self._hand_ons.append(hand_on)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Before Triton ends this process: a metric that lives until the interpreter's end uses
        shared memory that is gone by then, and the process dies of SIGSEGV (Triton 2.51).
        """
        self._is_closing.set()
        self._thread.join()
        self._hand_ons.clear()  # with them the metrics, which Triton wants gone before a family
        self._families.clear()

    def _run(self) -> None:
        while not self._is_closing.wait(EVERY_S):
            for hand_on in self._hand_ons:
                hand_on()
