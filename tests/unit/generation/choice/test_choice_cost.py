"""The time of a choice's engine streams: what engines report, and what is measured without that."""

from __future__ import annotations

import pytest

from proxy.domain.output import EngineTimes, TokenDelta
from proxy.domain.record import DURATION_BUCKETS_S, RequestRecord
from proxy.generation.choice.choice_cost import ChoiceCost
from tests.doubles.engine import CARD

TIMES = EngineTimes(prefill_s=0.02, decode_s=0.03)


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


def test_a_queue_that_took_longer_than_all_leaves_no_negative_time():
    cost = Costs()
    cost.stream(None, queue_s=60.0)
    assert cost.times.prefill_s == 0.0


def test_each_gap_is_counted_and_the_first_response_ends_none():
    token, two = TokenDelta((b"a",)), TokenDelta((b"a", b"b"))
    times, record = iter([7, 7.02, 7.04, 707.04, 800]), RequestRecord()
    cost = ChoiceCost(CARD, record, clock=lambda: next(times))
    cost.begin_stream(counts_gaps=True)
    for delta in (token, token, two, token):
        cost.see(delta)
    cost.end_stream(None)
    slots = {DURATION_BUCKETS_S[at]: count for at, count in enumerate(record.gaps[:-1]) if count}
    assert slots == {0.025: 2}
    assert record.gaps[-1] == 1
    assert record.gaps_s == pytest.approx(700.04)
    assert record.token_times_s == [pytest.approx(700.04 / 4)]
