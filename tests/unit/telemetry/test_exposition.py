"""/metrics in both formats, and the exemplars of one."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from proxy.domain.output import FinishReason
from proxy.domain.record import RequestRecord, Trace
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.metrics import Metrics
from tests.doubles.engine import CARD

OPEN = "application/openmetrics-text; version=1.0.0"
REQUEST = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="x"))


def ended(metrics: Metrics, ttft_s: float, trace: Trace | None) -> None:
    record = RequestRecord(trace=trace, first_event_s=ttft_s, finish=FinishReason.STOP)
    with metrics.generations.counted(record, REQUEST, CARD):
        pass


def trace(number: int, *, is_sampled: bool = True) -> Trace:
    return Trace(trace_id=number, span_id=1, parent_id=None, is_sampled=is_sampled)


def exemplars(metrics: Metrics) -> dict[str, dict[str, tuple[str, float]]]:
    """Family -> bound -> trace id and value."""
    text, _ = Exposition(metrics).exposed(OPEN)
    found: dict[str, dict[str, tuple[str, float]]] = {}
    for family in open_families(text.decode()):
        for sample in family.samples:
            if (one := sample.exemplar) is not None:
                given = one.labels["trace_id"], one.value
                found.setdefault(family.name, {})[sample.labels["le"]] = given
    return found


def test_both_formats_have_the_same_samples():
    metrics = Metrics()
    ended(metrics, 0.2, trace(7))

    def samples(accept: str, parse) -> set:
        text, _ = Exposition(metrics).exposed(accept)
        return {
            (sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for family in parse(text.decode())
            for sample in family.samples
        }

    assert samples(OPEN, open_families) == samples("", plain_families)


def test_the_last_sampled_request_of_a_bucket_is_its_exemplar():
    metrics = Metrics()
    for number, ttft_s in ((1, 0.002), (2, 0.02), (3, 0.021), (4, 700.0)):
        ended(metrics, ttft_s, trace(number))
    found = exemplars(metrics)
    assert found["proxy_time_to_first_token_seconds"] == {
        "0.0025": (f"{1:032x}", 0.002),
        "0.025": (f"{3:032x}", 0.021),
        "+Inf": (f"{4:032x}", 700.0),
    }
    [(of_duration, _)] = found["proxy_request_duration_seconds"].values()
    assert of_duration == f"{4:032x}"
    assert found.keys() == {"proxy_time_to_first_token_seconds", "proxy_request_duration_seconds"}


@pytest.mark.parametrize("given", [None, trace(9, is_sampled=False)])
def test_a_request_without_a_sampled_trace_is_no_exemplar(given):
    metrics = Metrics()
    ended(metrics, 0.02, given)
    assert exemplars(metrics) == {}
