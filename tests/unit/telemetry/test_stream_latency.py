"""RequestLatency: gaps, time of a token, and queueing, of all streams of a request."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from proxy.domain.engine import EngineRequest
from proxy.domain.generation import Report
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import GenerationRequest, Sampling, TextPrompt
from proxy.telemetry import request_log
from proxy.telemetry.buckets import DURATION_BUCKETS_S
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_watcher import TelemetryWatcher
from proxy.telemetry.stream_latency import RequestLatency
from tests.doubles.engine import CARD

TOKEN = TokenDelta((b"a",))
TWO = TokenDelta((b"a", b"b"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def asked(**fields) -> EngineRequest:
    return EngineRequest(id="r", model=CARD, timeout_s=1, sampling=Sampling(), **fields)


def seen(*responses: tuple[float, TokenDelta], **fields) -> RequestLatency:
    """Responses at these times, of one stream."""
    clock = Clock()
    pace = RequestLatency(clock)
    stream = pace.stream(asked(**fields))
    for at, delta in responses:
        clock.now = 100 + at
        stream.see(delta)
    return pace


def test_each_gap_is_counted_and_the_first_response_ends_none():
    pace = seen((7, TOKEN), (7.02, TOKEN), (7.04, TWO), (707.04, TOKEN))
    slots = {DURATION_BUCKETS_S[at]: count for at, count in enumerate(pace.gaps[:-1]) if count}
    assert slots == {0.025: 2}
    assert pace.gaps[-1] == 1
    assert pace.gaps_s == pytest.approx(700.04)


def test_the_time_of_a_token_is_the_mean_behind_the_first_response():
    assert seen((1, TWO), (1.3, TWO), (1.6, TOKEN)).token_s == [pytest.approx(0.2)]


@pytest.mark.parametrize(
    ("responses", "fields"),
    [
        ([], {}),
        ([(1, TOKEN)], {}),
        ([(1, TOKEN), (2, TokenDelta((), finish=FinishReason.STOP))], {}),
        ([(1, TOKEN), (2, TOKEN)], {"echoes_prompt": True}),
    ],
)
def test_without_a_second_response_there_is_no_pace(responses, fields):
    pace = seen(*responses, **fields)
    assert (sum(pace.gaps), pace.gaps_s, pace.token_s, pace.queue_s) == (0, 0, [], None)


def test_streams_side_by_side_have_their_own_gaps_and_the_longest_queue_is_the_requests():
    clock = Clock()
    pace = RequestLatency(clock)
    streams = [pace.stream(asked()) for _ in range(3)]
    for number, stream in enumerate(streams):
        stream.see(TokenDelta((b"a",), queue_s=float(number)))
        clock.now += 1
    for stream in streams:
        clock.now += 1
        stream.see(TOKEN)
    assert (sum(pace.gaps), pace.gaps_s) == (3, 12)
    assert (pace.queues_s, pace.queue_s) == ([0, 1, 2], 2)


def watched(metrics: Metrics, *deltas: TokenDelta) -> dict:
    """The log line of a request with one engine stream."""
    request = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="x"))
    report = Report()
    watch = TelemetryWatcher(metrics).begin(request, CARD, report)
    with (
        capture_logs() as lines,
        request_log.RequestLine(method="POST", path="/v1/chat/completions"),
        watch,
    ):
        stream = watch.stream(asked())
        for delta in deltas:
            stream.see(delta)
        report.finish = FinishReason.STOP
    return lines[0]


def test_the_log_line_tells_queueing_from_inference():
    told = watched(Metrics(), TokenDelta((b"a",), queue_s=40.0), TOKEN)
    assert told["queue_ms"] == 40_000.0
    assert told["inference_ms"] == pytest.approx(-40_000, abs=1000)  # it did not really wait


def test_an_engine_that_says_nothing_of_its_queue_leaves_the_field_out():
    told = watched(Metrics(), TOKEN, TOKEN)
    assert "queue_ms" not in told
    assert told["inference_ms"] >= 0


def test_the_histograms_have_what_was_seen():
    metrics = Metrics()
    watched(metrics, TokenDelta((b"a",), queue_s=0.2), TOKEN, TOKEN)

    def sample(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"model": "demo", **labels})

    assert sample("proxy_queue_time_seconds_count") == 1
    assert sample("proxy_queue_time_seconds_sum") == 0.2
    assert sample("proxy_inter_token_latency_seconds_count") == 2
    assert sample("proxy_inter_token_latency_seconds_bucket", le="+Inf") == 2
    assert sample("proxy_time_per_output_token_seconds_count") == 1
    total_s = sample("proxy_inter_token_latency_seconds_sum")
    assert total_s == pytest.approx(2 * sample("proxy_time_per_output_token_seconds_sum"))
