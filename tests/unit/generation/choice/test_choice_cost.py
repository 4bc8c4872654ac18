"""The time of a choice's engine streams: what engines report, and what is measured without that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.interrupt import Cause
from proxy.domain.model import CAPABILITIES
from proxy.domain.output import AnswerTimes, EngineTimes, TokenDelta
from proxy.domain.record import RequestRecord
from proxy.generation.choice.choice_cost import ChoiceCost
from tests.doubles.engine import CARD

TIMES = EngineTimes(prefill_s=0.02, decode_s=0.03)
MUTE = replace(CARD, capabilities=CAPABILITIES - {"engine_times"})


class Costs(ChoiceCost):
    """Of one choice, whose streams take as long as a test says."""

    def __init__(self, card=CARD) -> None:
        self.record = RequestRecord()
        super().__init__(card, self.record)

    def stream(
        self, reported: EngineTimes | None, *, queue_s: float = 0.01, took_s: float = 1.0
    ) -> dict[str, float]:
        """Seconds by stage."""
        stage = self.begin("r")
        assert stage is self.record.stages[-1]
        stage.began -= took_s
        self.see_first(TokenDelta((b"a",), queue_s=queue_s))
        self.end(reported)
        return self.record.seconds()


def test_the_engines_times_end_with_the_last_response():
    cost = Costs()
    found = cost.stream(TIMES)
    assert found["triton"] == pytest.approx(1.0, abs=0.5)
    assert found["engine queue"] == pytest.approx(0.01)
    assert found["prefill"] == pytest.approx(0.02)
    assert found["decode"] == pytest.approx(0.03)
    triton, decode, prefill, queue = cost.record.stages
    assert queue.ended == prefill.began
    assert prefill.ended == decode.began
    assert decode.ended == triton.ended
    assert {one.parent for one in (queue, prefill, decode)} == {triton}


def test_they_never_begin_before_their_stream():
    cost = Costs()
    cost.stream(TIMES, took_s=0.0)
    triton, *within = cost.record.stages
    assert all(triton.began <= one.began <= one.ended <= triton.ended for one in within)


def test_an_engine_that_reports_no_times_has_no_stages_of_its_own():
    assert list(Costs().stream(None)) == ["triton"]


def test_each_part_of_a_stream_has_a_stage_of_its_own():
    cost = Costs()
    cost.begin("r")
    cost.end(cause=Cause.LOST)
    cost.begin("r")
    cost.end()
    assert [(one.name.value, one.error) for one in cost.record.stages] == [
        ("triton", "lost"),
        ("triton", None),
    ]
    assert all(one.ended is not None for one in cost.record.stages)


def test_what_the_engine_does_not_report_is_measured_if_it_reports_times_at_all():
    cost = Costs()
    cost.stream(None, took_s=1.0)
    assert cost.times.prefill_s == pytest.approx(1.0, abs=0.5)
    assert cost.times.decode_s < 0.5
    mute = Costs(MUTE)
    mute.stream(None)
    assert mute.times == AnswerTimes(queue_s=0.01, prefill_s=None, decode_s=None)


def test_a_queue_that_took_longer_than_all_leaves_no_negative_time():
    cost = Costs()
    cost.stream(None, queue_s=60.0)
    assert cost.times.prefill_s == 0.0


def test_an_end_without_a_running_stream_adds_nothing():
    cost = Costs()
    cost.end()
    cost.begin("r")  # lost before its first delta
    cost.end()
    cost.stream(TIMES)
    cost.end()
    assert cost.times == AnswerTimes(queue_s=0.01, prefill_s=0.02, decode_s=0.03)
