"""The times of a choice's streams in the record: gaps, the time of a token, and queueing."""

from __future__ import annotations

from itertools import count

import pytest

from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.record import DURATION_BUCKETS_S, RequestRecord
from proxy.generation.choice.choice_cost import ChoiceCost
from tests.doubles.engine import CARD

TOKEN, TWO = TokenDelta((b"a",)), TokenDelta((b"a", b"b"))
END = TokenDelta((), finish=FinishReason.STOP)


def seen(*responses: tuple[float, TokenDelta], counts_gaps: bool = True) -> RequestRecord:
    """Responses at these times, of one stream."""
    times = iter([at for at, _ in responses])
    record = RequestRecord()
    cost = ChoiceCost(CARD, record, clock=lambda: 100 + next(times))
    cost.begin_stream(counts_gaps=counts_gaps)
    for _, delta in responses:
        cost.see(delta)
    cost.end_stream(None)
    return record


def test_each_gap_is_counted_and_the_first_response_ends_none():
    record = seen((7, TOKEN), (7.02, TOKEN), (7.04, TWO), (707.04, TOKEN))
    slots = {DURATION_BUCKETS_S[at]: count for at, count in enumerate(record.gaps[:-1]) if count}
    assert slots == {0.025: 2}
    assert record.gaps[-1] == 1
    assert record.gaps_s == pytest.approx(700.04)
    assert record.token_times_s == [pytest.approx(700.04 / 4)]


@pytest.mark.parametrize(
    ("responses", "fields"),
    [
        ([], {}),
        ([(1, TOKEN)], {}),
        ([(1, TOKEN), (2, END)], {}),
        ([(1, TOKEN), (2, TOKEN)], {"counts_gaps": False}),
    ],
)
def test_without_a_second_response_there_is_no_pace(responses, fields):
    record = seen(*responses, **fields)
    assert (sum(record.gaps), record.gaps_s, record.token_times_s) == (0, 0, [])
    assert record.row_wait_s is None


def test_streams_side_by_side_have_their_own_gaps_and_the_longest_queue_is_the_requests():
    seconds, record = count(100), RequestRecord()
    streams = [ChoiceCost(CARD, record, clock=lambda: float(next(seconds))) for _ in range(3)]
    for number, stream in enumerate(streams):
        first = TokenDelta((b"a",), queue_s=float(number))
        stream.begin("r")
        stream.see_first(first)
        stream.see(first)
    for stream in streams:
        stream.see(TOKEN)
        stream.end_stream(None)
    assert record.token_times_s == [3, 3, 3]
    assert (record.gaps_s, record.engine_queues_s, record.row_wait_s) == (9, [0, 1, 2], 2)
