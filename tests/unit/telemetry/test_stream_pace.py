"""The times of a request's streams in its record: gaps, the time of a token, and queueing."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.record import DURATION_BUCKETS_S, RequestRecord
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_log import RequestLog
from tests.doubles.engine import CARD

TOKEN = TokenDelta((b"a",))
TWO = TokenDelta((b"a", b"b"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def seen(*responses: tuple[float, TokenDelta], counts_gaps: bool = True) -> RequestRecord:
    """Responses at these times, of one stream."""
    clock = Clock()
    record = RequestRecord(clock=clock)
    pace = record.pace(counts_gaps=counts_gaps)
    for at, delta in responses:
        clock.now = 100 + at
        pace.see(delta)
    return record


def gaps_s(record: RequestRecord) -> float:
    return sum(pace.gaps_s for pace in record.paces)


def token_s(record: RequestRecord) -> list[float]:
    return [pace.token_s for pace in record.paces if pace.token_s is not None]


def test_each_gap_is_counted_and_the_first_response_ends_none():
    record = seen((7, TOKEN), (7.02, TOKEN), (7.04, TWO), (707.04, TOKEN))
    slots = {DURATION_BUCKETS_S[at]: count for at, count in enumerate(record.gaps[:-1]) if count}
    assert slots == {0.025: 2}
    assert record.gaps[-1] == 1
    assert gaps_s(record) == pytest.approx(700.04)


def test_the_time_of_a_token_is_the_mean_behind_the_first_response():
    assert token_s(seen((1, TWO), (1.3, TWO), (1.6, TOKEN))) == [pytest.approx(0.2)]


@pytest.mark.parametrize(
    ("responses", "fields"),
    [
        ([], {}),
        ([(1, TOKEN)], {}),
        ([(1, TOKEN), (2, TokenDelta((), finish=FinishReason.STOP))], {}),
        ([(1, TOKEN), (2, TOKEN)], {"counts_gaps": False}),
    ],
)
def test_without_a_second_response_there_is_no_pace(responses, fields):
    record = seen(*responses, **fields)
    assert (sum(record.gaps), gaps_s(record), token_s(record)) == (0, 0, [])
    assert record.row_wait_s is None


def test_streams_side_by_side_have_their_own_gaps_and_the_longest_queue_is_the_requests():
    clock = Clock()
    record = RequestRecord(clock=clock)
    streams = [record.pace(counts_gaps=True) for _ in range(3)]
    for number, stream in enumerate(streams):
        stream.see(TokenDelta((b"a",), queue_s=float(number)))
        clock.now += 1
    for stream in streams:
        clock.now += 1
        stream.see(TOKEN)
    assert (sum(record.gaps), gaps_s(record)) == (3, 12)
    assert (record.engine_queues_s, record.row_wait_s) == ([0, 1, 2], 2)


def watched(metrics: Metrics, *deltas: TokenDelta) -> dict:
    """The log line of a request with one engine stream."""
    request = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="x"))
    with (
        capture_logs() as lines,
        RequestLog().recorded("POST", "/v1/chat/completions") as record,
        metrics.generations.counted(record, request, CARD),
    ):
        pace = record.pace(counts_gaps=True)
        for delta in deltas:
            pace.see(delta)
        record.finish = FinishReason.STOP
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
