"""The engine's own counters, as Triton custom metrics on Triton's metrics port."""

from __future__ import annotations

from typing import Any, Protocol


class Metric(Protocol):
    """The part of `pb_utils.Metric` that is used."""

    def increment(self, value: float) -> None: ...

    def set(self, value: float) -> None: ...


class Counters:
    """One set a model instance; label `model` is the engine model's name."""

    def __init__(self, pb_utils: Any, model: str) -> None:
        def metric(kind: str, name: str, description: str) -> Metric:
            family = pb_utils.MetricFamily(
                name=name, description=description, kind=getattr(pb_utils.MetricFamily, kind)
            )
            self._families.append(family)
            made: Metric = family.Metric(labels={"model": model})
            return made

        self._families: list[Any] = []  # a family must outlive its metrics
        self.prompt_tokens = metric(
            "COUNTER", "engine_prompt_tokens", "Prompt tokens of admitted requests"
        )
        self.generated_tokens = metric("COUNTER", "engine_generated_tokens", "Tokens generated")
        self.finished = metric(
            "COUNTER", "engine_requests_finished", "Requests that ended by themselves"
        )
        self.cancelled = metric(
            "COUNTER", "engine_requests_cancelled", "Requests ended by a stop or cancel"
        )
        self.failed = metric("COUNTER", "engine_requests_failed", "Requests ended by an error")
        self.unfinished = metric(
            "GAUGE", "engine_requests_unfinished", "Requests waiting or running"
        )
