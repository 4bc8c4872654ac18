"""The response writer and the metrics: what is sent at once, joined, late, and what is reported."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import time
import weakref
from collections import Counter
from functools import partial

import pytest
from triton_python_backend_utils import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL

from leases import Leases
from metrics import MetricReporter, add_nvidias
from port import Token, TokenLogProbs
from response_writer import FEW_STREAMS, ResponseWriter, usable_cores
from stats import Stats
from stream import INT32_MOST, microseconds
from tests.doubles.response_sender import Sender
from tests.fixtures.stack import HANG_S, eventually

HOLD_S = 0.2


@pytest.fixture
def make_writer():
    made = []

    def make(**options: float) -> ResponseWriter:
        made.append(ResponseWriter(Leases(), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def writer(make_writer):
    # with 8 streams: one response of each in 160 ms
    return make_writer(cores=4, wanted_a_core=12.5, hold_s=HOLD_S)


def test_an_end_without_a_token_still_has_its_reason(writer):
    sender = Sender()
    stream = writer.open(sender, 3)
    stream.started(0)
    stream.token(Token(7), None)
    eventually(lambda: sender.sent, 10, "the token is sent")
    stream.finished("stop")
    assert sender.is_over.wait(HANG_S)
    assert sender.ids == [[7], []]
    _, tensors, error, flags = sender.sent[-1]
    assert (tensors["finish_reason"].item(), error, flags) == (b"stop", None, FINAL)


def test_with_few_streams_each_token_is_sent_at_once(writer):
    sender = Sender()
    stream = writer.open(sender, 3)
    stream.started(2)
    for token in range(5):
        stream.token(Token(token), None)
        eventually(lambda token=token: len(sender.sent) == token + 1, 10, "it is sent")
    stream.token(Token(5), "length")
    assert sender.is_over.wait(HANG_S)
    assert sender.ids == [[0], [1], [2], [3], [4], [5]]
    first, *rest = [tensors for _, tensors, _, _ in sender.sent]
    assert (first["num_input_tokens"].item(), first["num_cached_tokens"].item()) == (3, 2)
    assert first["queue_time_us"].item() >= 0
    assert all("num_input_tokens" not in tensors for tensors in rest)
    assert rest[-1]["finish_reason"].item() == b"length"
    assert all("decode_time_us" not in tensors for tensors in (first, *rest[:-1]))
    assert rest[-1]["prefill_time_us"].item() >= 0
    assert rest[-1]["decode_time_us"].item() > 0
    assert sender.sent[-1][3] == FINAL
    assert writer.totals["finished"] == 1
    assert writer.unfinished == 0


def test_the_wait_before_the_start_is_reported_unless_the_runtime_learns_of_it_late(writer):
    timely, late = Sender(), Sender()
    waiting = [writer.open(sender, 1) for sender in (timely, late)]
    began = time.monotonic()
    eventually(lambda: time.monotonic() - began > 0.05, 10, "they have waited")
    least_us = (time.monotonic() - began) * 1_000_000
    for stream, is_late in zip(waiting, (False, True), strict=True):
        stream.started(0, is_late=is_late)
        stream.token(Token(1), "stop")
    assert timely.is_over.wait(HANG_S)
    assert late.is_over.wait(HANG_S)
    assert timely.sent[0][1]["queue_time_us"].item() >= round(least_us)
    assert "queue_time_us" not in late.sent[0][1]


def test_the_times_of_prefill_and_decode_leave_out_the_waits_for_a_row(writer):
    """Each pause adds to its own time alone: they are summed over both rows of the request."""
    sender, pause_s, spent = Sender(), 0.05, Counter()

    def passing(what: str) -> None:
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > pause_s, HANG_S, what)
        spent[what] += time.monotonic() - began

    began = time.monotonic()
    stream = writer.open(sender, 3)
    passing("queue")
    for again in (False, True):
        (stream.resumed if again else partial(stream.started, 0))()
        passing("prefill")
        stream.token(Token(1), None)
        passing("decode")
        stream.token(Token(2), "stop" if again else None)
        if not again:
            stream.preempted()
            passing("waiting")
    whole_us = (time.monotonic() - began) * 1_000_000
    assert sender.is_over.wait(HANG_S)
    reported = {name: array for _, tensors, _, _ in sender.sent for name, array in tensors.items()}
    times_us = {part: reported[f"{part}_time_us"].item() for part in ("queue", "prefill", "decode")}
    for part, time_us in times_us.items():
        assert time_us >= round(spent[part] * 1_000_000)
    assert sum(times_us.values()) <= whole_us - round(spent["waiting"] * 1_000_000) + 3


def test_prefill_begins_at_the_arrival_where_the_runtime_does_not_know_the_row(writer):
    sender = Sender()
    stream = writer.open(sender, 1)
    began = time.monotonic()
    eventually(lambda: time.monotonic() - began > 0.05, 10, "it has waited")
    least_us = (time.monotonic() - began) * 1_000_000
    stream.started(0, is_late=True)
    stream.token(Token(1), "stop")
    assert sender.is_over.wait(HANG_S)
    assert sender.sent[0][1]["prefill_time_us"].item() >= round(least_us)
    assert sender.sent[0][1]["decode_time_us"].item() == 0, "of a single token"


def test_times_are_cut_at_what_an_int32_holds():
    assert microseconds(2 * INT32_MOST / 1_000_000) == INT32_MOST
    assert microseconds(0.25) == 250_000


def test_with_many_streams_tokens_are_joined_but_never_the_first_or_last_held(writer):
    senders = [Sender() for _ in range(FEW_STREAMS + 4)]
    streams = [writer.open(sender, 1) for sender in senders]
    began = time.monotonic()
    for token in range(40):
        for stream in streams:
            stream.token(Token(token), None)
        time.sleep(0.01)
    ended = time.monotonic()
    for stream in streams:
        stream.token(Token(40), "stop")
    first, last, gap = list[float](), list[float](), list[float]()
    for sender in senders:
        assert sender.is_over.wait(HANG_S)
        moments = [moment for moment, _, _, _ in sender.sent]
        assert [i for ids in sender.ids for i in ids] == list(range(41)), "in order, once each"
        assert len(sender.ids) < 15
        first.append(moments[0] - began)
        last.append(moments[-1] - ended)
        gap.append(max(after - before for before, after in itertools.pairwise(moments)))
    # medians: a busy machine may stop us for as long, but not every time
    assert statistics.median(first) < 0.1
    assert statistics.median(last) < 0.1
    assert statistics.median(gap) < HOLD_S + 0.1


@pytest.mark.parametrize(
    ("hold_s", "is_joined"), [(0.001, True), (0.0, False)], ids=["hold_ms: 1", "hold_ms: 0"]
)
def test_more_streams_do_not_send_more_responses(make_writer, hold_s, is_joined):
    """A token waits as long as the rate demands, also longer than hold_ms."""
    writer = make_writer(cores=0.4, wanted_a_core=1_000_000, hold_s=hold_s)
    senders = [Sender() for _ in range(200)]
    streams = [writer.open(sender, 1) for sender in senders]
    for token in range(60):
        for stream in streams:
            stream.token(Token(token), None)
        time.sleep(0.01)
    for stream in streams:
        stream.token(Token(60), "stop")
    for sender in senders:
        assert sender.is_over.wait(HANG_S)
        assert [token for ids in sender.ids for token in ids] == list(range(61))
    middle = [moment for sender in senders for moment, *_ in sender.sent[1:-1]]
    spent_s = max(sender.sent[-1][0] for sender in senders) - min(
        sender.sent[0][0] for sender in senders
    )
    assert (len(middle) <= 400 * spent_s + len(senders)) is is_joined


def test_the_cores_are_those_of_this_process_and_of_its_container(tmp_path):
    own, quota = len(os.sched_getaffinity(0)), tmp_path / "cpu.max"
    assert usable_cores(quota) == own
    for text, cores in (("max 100000", own), ("9900000 100000", own), ("50000 100000", 0.5)):
        quota.write_text(f"{text}\n")
        assert usable_cores(quota) == cores


def test_log_probs_stay_with_their_tokens(writer):
    sender = Sender()
    stream = writer.open(sender, 1)
    for token in (4, 5):
        stream.token(Token(token, TokenLogProbs(-0.5, ((token, -0.5), (9, -2.0)))), None)
    stream.token(Token(6, TokenLogProbs(-1.5, ((9, -0.1), (6, -1.5)))), "stop")
    assert sender.is_over.wait(HANG_S)
    tensors = [tensors for _, tensors, _, _ in sender.sent]
    own = [value for one in tensors for value in one["output_log_probs"].ravel().tolist()]
    top = [value for one in tensors for value in one["top_log_prob_ids"].ravel().tolist()]
    assert own == [-0.5, -0.5, -1.5]
    assert top == [4, 9, 5, 9, 9, 6]


def test_a_refusal_a_failure_and_a_cancel_end_a_stream(writer):
    refused, failed, cancelled = Sender(), Sender(), Sender()
    writer.open(refused, 1).refuse("seed", "it is odd")
    writer.open(failed, 1).fail("the model broke")
    writer.open(cancelled, 1).cancelled()
    for sender in (refused, failed, cancelled):
        assert sender.is_over.wait(HANG_S)
    error = refused.sent[0][2]
    assert json.loads(str(error))["param"] == "seed"
    assert error.code == "invalid argument"
    assert failed.sent[0][2].code == "internal"
    assert cancelled.sent[0][1:] == ({}, None, FINAL)
    eventually(lambda: writer.unfinished == 0, 10, "all are over")
    assert [writer.totals[end] for end in ("refused", "failed", "cancelled")] == [1, 1, 1]


def test_a_client_that_disconnects_is_noticed(writer):
    sender = Sender()
    stream = writer.open(sender, 1)
    assert not stream.is_abandoned()
    sender.is_gone = True
    eventually(stream.is_abandoned, 10, "it has disconnected")


def test_a_sender_that_breaks_takes_no_other_stream_with_it(writer):
    broken, sound = Sender(), Sender()
    broken.is_broken = True
    stream = writer.open(broken, 1)
    stream.token(Token(1), None)
    eventually(stream.is_abandoned, 10, "the runtime sees it")
    writer.open(sound, 1).token(Token(1), "stop")
    assert sound.is_over.wait(HANG_S)


def test_a_rejected_request_gets_its_reason_and_is_never_unfinished(writer):
    sender = Sender()
    writer.reject(sender, "queue_full", "come back later")
    assert writer.unfinished == 0
    assert sender.is_over.wait(HANG_S)
    (_, tensors, error, flags) = sender.sent[0]
    assert (tensors, flags) == ({}, FINAL)
    assert json.loads(str(error)) == {
        "code": "queue_full",
        "param": None,
        "message": "come back later",
    }
    assert writer.totals["refused"] == 1


def test_an_echoed_prompt_is_sent_in_pieces(writer):
    sender = Sender()
    stream = writer.open(sender, 200)
    stream.started(0)
    stream.echo([Token(at, TokenLogProbs(-1.0, ())) for at in range(200)], None)
    stream.token(Token(200, TokenLogProbs(-1.0, ())), "stop")
    eventually(sender.is_over.is_set, 30, "all is sent")
    assert [token for ids in sender.ids for token in ids] == list(range(201))
    assert max(map(len, sender.ids)) <= 65
    counts = [tensors.get("num_input_tokens") is not None for _, tensors, _, _ in sender.sent]
    assert counts == [True, *[False] * (len(counts) - 1)]


def test_cached_tokens_of_an_answer_are_none_of_the_prompts(writer):
    """A continued answer finds its own tokens in the cache, too."""
    sender = Sender()
    stream = writer.open(sender, 3)
    stream.started(16)
    stream.token(Token(7), "stop")
    assert sender.is_over.wait(HANG_S)
    first = sender.sent[0][1]
    assert (first["num_input_tokens"].item(), first["num_cached_tokens"].item()) == (3, 3)


def test_a_lease_is_refused_without_a_name_twice_and_beyond_the_most():
    held = Leases(most=2)
    assert "request id" in held.hold("", Sender())
    assert held.hold("a", Sender()) is None
    assert "is open" in held.hold("a", Sender())
    assert held.hold("b", Sender()) is None
    assert "2 leases are open" in held.hold("c", Sender())


def test_a_stream_ends_at_its_deadline_with_an_error_that_says_so(writer):
    sender, other = Sender(), Sender()
    late, in_time = writer.open(sender, 1), writer.open(other, 1)
    late.end_after(0.01)
    in_time.end_after(600)
    eventually(late.is_abandoned, 10, "it is late")
    assert not in_time.is_abandoned()
    late.cancelled()  # as a runtime does with what is abandoned
    assert sender.is_over.wait(HANG_S)
    assert json.loads(str(sender.sent[0][2]))["code"] == "deadline_exceeded"


Key = tuple[str, frozenset[tuple[str, str]]]


class Metrics:
    """Triton's `pb_utils`, which notes what is reported and what is destroyed."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.values: dict[Key, float] = {}
        outer = self

        class Metric:
            def __init__(self, name: str, labels: dict[str, str]) -> None:
                self._key = name, frozenset(labels.items())
                outer.values[self._key] = 0.0
                weakref.finalize(self, outer.gone.append, f"metric of {name}")

            def increment(self, by: float) -> None:
                outer.values[self._key] += by

            def set(self, value: float) -> None:
                outer.values[self._key] = value

        class MetricFamily:
            COUNTER, GAUGE = "counter", "gauge"

            def __init__(self, name: str, description: str, kind: str) -> None:
                self._name = name
                weakref.finalize(self, outer.gone.append, name)

            def Metric(self, labels: dict[str, str]) -> Metric:
                return Metric(self._name, labels)

        self.MetricFamily = MetricFamily


def test_metrics_are_destroyed_at_the_close_before_their_families():
    triton = Metrics()
    reporter = MetricReporter(triton, "demo_engine")
    reporter.add("COUNTER", "a", "", lambda: 1)
    reporter.add("GAUGE", "b", "", lambda: 1)
    reporter.start()
    assert triton.gone == []
    reporter.close()
    assert set(triton.gone[:2]) == {"metric of a", "metric of b"}
    assert set(triton.gone[2:]) == {"a", "b"}


def reported(stats: Stats) -> dict[tuple[str, str], float]:
    """What NVIDIA's families say of these stats, by family and the label that differs."""
    triton = Metrics()
    reporter = MetricReporter(triton, "demo")
    add_nvidias(reporter, stats, "demo_engine", "1")
    reporter.add("GAUGE", "last", "", lambda: 1)
    reporter.start()
    eventually(lambda: 1 in [v for (name, _), v in triton.values.items() if name == "last"], 10, "")
    reporter.close()
    found = {}
    for (family, labels), value in triton.values.items():
        kinds = {"nv_trt_llm_request_metrics": "request_type"}
        kind = kinds.get(family, "kv_cache_block_type")
        if family != "last":
            assert set(labels) > {("model", "demo_engine"), ("version", "1")}
            found[family.removeprefix("nv_trt_llm_"), dict(labels)[kind]] = value
    return found


def test_what_a_runtime_does_not_know_is_not_exported():
    assert {kind for _, kind in reported(Stats())} == {"waiting", "scheduled", "active", "context"}
