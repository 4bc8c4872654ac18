"""bytes_in_flight: room for new bodies is made by cutting off those that arrive slowly."""

from __future__ import annotations

import pytest

from proxy.api.http.body_reader import BytesInFlight
from proxy.domain.errors import ErrorCode, RateLimited


def test_the_oldest_unfinished_body_makes_room():
    flight, cut = BytesInFlight(10), []
    bodies = [flight.arriving(lambda at=at: cut.append(at)) for at in range(3)]
    for body in bodies:
        body.add(4)
    assert (cut, flight.bytes) == ([0], 8)


def test_a_complete_body_is_not_cut_off():
    flight, cut = BytesInFlight(10), []
    first, second = (flight.arriving(lambda at=at: cut.append(at)) for at in range(2))
    first.add(6)
    first.complete()
    with pytest.raises(RateLimited) as refused:
        second.add(6)
    assert refused.value.code is ErrorCode.QUEUE_FULL
    assert (cut, flight.bytes) == ([], 6)


def test_room_is_given_back_once_however_often_a_body_is_closed():
    flight = BytesInFlight(10)
    body = flight.arriving(lambda: None)
    body.add(10)
    body.close()
    body.close()
    assert flight.bytes == 0
    flight.arriving(lambda: None).add(10)
