"""The clock of a choice's engine streams: what they report, and what it measures without that."""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.answer_times import AnswerTimes
from proxy.domain.model import CAPABILITIES
from proxy.domain.output import EngineTimes
from proxy.generation.choice.choice_cost import ChoiceClock
from tests.doubles.engine import CARD

TIMED = replace(CARD, capabilities=CAPABILITIES)
REPORTED = EngineTimes(prefill_s=1.0, decode_s=10.0)


def run(clock: ChoiceClock, reported: EngineTimes | None, queue_s: float | None = 0.5) -> None:
    clock.begin()
    clock.see_first(queue_s)
    clock.end(reported)


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
