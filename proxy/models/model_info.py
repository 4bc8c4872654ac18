"""The metric that says which Triton models serve a public model. `app` adds it to the others.

An engine's own metrics have the label `model`, too: the name of its Triton model. A deployment may
give that another name than the public one, and a LoRA adapter has its model's.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from proxy.models.registry import Registry

LABELS = ("model", "pool", "triton_model")


class ModelInfo:
    """Implements prometheus_client's Collector."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """May be called by any thread."""
        text = "1 for each Triton model that serves a public model"
        family = GaugeMetricFamily("proxy_model_info", text, labels=LABELS)
        variants = self._registry.table.variants.values()
        places = {(one.name, one.pool, one.triton_model) for cards in variants for one in cards}
        for place in sorted(places):
            family.add_metric(place, 1)
        yield family
