"""The times of a choice's streams in the record: gaps, the time of a token, and queueing."""

from __future__ import annotations

import pytest

from proxy.domain.output import TokenDelta
from proxy.domain.record import DURATION_BUCKETS_S, RequestRecord
from proxy.generation.choice.choice_cost import ChoiceCost
from tests.doubles.engine import CARD

TOKEN, TWO = TokenDelta((b"a",)), TokenDelta((b"a", b"b"))


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
