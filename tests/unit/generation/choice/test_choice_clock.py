"""The clock of a choice's engine streams: what they report, and what it measures without that."""

from __future__ import annotations

import time
from dataclasses import replace

from proxy.domain.answer_times import AnswerTimes
from proxy.domain.model import CAPABILITIES
from proxy.domain.output import EngineTimes
from proxy.generation.choice.choice_cost import ChoiceClock
from tests.doubles.engine import CARD
from tests.fixtures.stack import HANG_S, eventually

TIMED = replace(CARD, capabilities=CAPABILITIES)
MUTE = replace(CARD, capabilities=CAPABILITIES - {"engine_times"})
REPORTED = EngineTimes(prefill_s=1.0, decode_s=10.0)
PAUSE_S = 0.02


def pause() -> None:
    since = time.monotonic()
    eventually(lambda: time.monotonic() - since > PAUSE_S, HANG_S, "time passes")


def run(clock: ChoiceClock, reported: EngineTimes | None, queue_s: float | None = 0.5) -> None:
    clock.begin()
    clock.see_first(queue_s)
    clock.end(reported)


def test_what_engines_report_adds_up():
    clock = ChoiceClock(TIMED)
    run(clock, REPORTED)
    assert clock.times == AnswerTimes(queue_s=0.5, prefill_s=1.0, decode_s=10.0)
    run(clock, REPORTED)
    assert clock.times == AnswerTimes(queue_s=1.0, prefill_s=2.0, decode_s=20.0)


def test_a_stream_that_ends_before_its_engine_reports_is_measured_here():
    clock = ChoiceClock(TIMED)
    began = time.monotonic()
    clock.begin()
    pause()
    clock.see_first(0.001)
    pause()
    last_at = time.monotonic()
    pause()
    clock.end(None, last_at)
    assert clock.times.queue_s == 0.001
    assert clock.times.prefill_s >= PAUSE_S - 0.001
    assert clock.times.decode_s >= PAUSE_S
    assert clock.times.prefill_s + clock.times.decode_s + 0.001 <= last_at - began + 1e-6


def test_a_queue_that_took_longer_than_all_leaves_no_negative_time():
    clock = ChoiceClock(TIMED)
    run(clock, None, queue_s=60.0)
    assert clock.times.prefill_s == 0.0


def test_an_end_without_a_running_stream_adds_nothing():
    clock = ChoiceClock(TIMED)
    clock.end(None)
    clock.begin()  # lost before its first delta
    clock.end(None)
    run(clock, REPORTED)
    clock.end(None)
    assert clock.times == AnswerTimes(queue_s=0.5, prefill_s=1.0, decode_s=10.0)


def test_an_engine_that_reports_no_times_is_not_measured():
    clock = ChoiceClock(MUTE)
    run(clock, None)
    assert clock.times == AnswerTimes(queue_s=0.5, prefill_s=None, decode_s=None)


def test_an_engine_that_reports_no_queue_has_none():
    clock = ChoiceClock(TIMED)
    run(clock, REPORTED, queue_s=None)
    assert clock.times == AnswerTimes(queue_s=None, prefill_s=1.0, decode_s=10.0)


def test_the_time_of_prefill_is_hidden_with_the_cached_tokens():
    clock = ChoiceClock(TIMED, reports_prefill=False)
    run(clock, REPORTED)
    assert clock.times == AnswerTimes(queue_s=0.5, prefill_s=None, decode_s=10.0)
