"""Reports the engine's metrics to Triton, which serves them on its metrics port.

Only one thread may use Triton's metrics: with two, tritonserver 2.51 crashes (seen under load). So
a thread of ours copies the values ten times a second. That also keeps the round trip to Triton's
process out of the path of a token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

REPORT_EVERY_S = 0.1
Kind = Literal["COUNTER", "GAUGE"]


class MetricReporter:
    """The metrics of one model. By default their only label `model` is its public name, as in the
    proxy's.
    """

    def __init__(self, pb_utils: Any, model: str) -> None:
        self._pb_utils = pb_utils
        self._model = model
        self._families: dict[str, Any] = {}  # a family must outlive its metrics
        self._reports: list[Callable[[], None]] = []
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metric-reporter", daemon=True)

    def add(
        self,
        kind: Kind,
        name: str,
        description: str,
        read: Callable[[], float],
        labels: dict[str, str] | None = None,
    ) -> None:
        """Adds a metric; `read` returns its current value. Call it before `start` only.

        Metrics of one name need different `labels`, and share kind and description.
        """
        families = self._pb_utils.MetricFamily
        if (family := self._families.get(name)) is None:
            family = families(name=name, description=description, kind=getattr(families, kind))
            self._families[name] = family
        metric, reported = family.Metric(labels=labels or {"model": self._model}), 0.0

        def report() -> None:
            nonlocal reported
            value = float(read())
            if value != reported:
                if kind == "GAUGE":  # sums of differences would not be exact
                    metric.set(value)
                else:
                    metric.increment(value - reported)
                reported = value

        self._reports.append(report)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Destroys the metrics. Call it before Triton ends this process.

        A metric that lives until the interpreter ends uses shared memory that no longer exists
        then, and the process dies of SIGSEGV (Triton 2.51).
        """
        self._is_closing.set()
        self._thread.join()
        self._reports.clear()  # and with them the metrics, which must go before their families
        self._families.clear()

    def _run(self) -> None:
        while not self._is_closing.wait(REPORT_EVERY_S):
            for report in self._reports:
                report()
