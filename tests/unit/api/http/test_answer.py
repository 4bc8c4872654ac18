"""The headers that say where an answer stands in the queue, and how long it has waited."""

from __future__ import annotations

import pytest

from proxy.api.http.own_headers import queue_headers
from proxy.domain.record import RequestRecord, Wait
from proxy.domain.scheduling import Standing

AGAIN = RequestRecord(queue_s=2.0, waits={"one": Wait(Standing(3, None), 10.0, 10.0)})
FIRST = RequestRecord(waits={"one": Wait(Standing(3, 7.0), 10.0, 11.0)})


@pytest.mark.parametrize(
    ("record", "now", "position", "wait"),
    [
        (RequestRecord(queue_s=1.23456), 5.0, "0", "1.235"),
        # one that waits again says its longest wait
        (AGAIN, 11.5, "3", "2.000"),
        (AGAIN, 12.5, "3", "2.500"),
        # one that still waits says how long it will probably have waited
        (FIRST, 11.5, "3", "8.000"),
        (FIRST, 19.0, "3", "9.000"),
    ],
)
def test_an_answer_says_its_position_and_its_wait(record, now, position, wait):
    headers = {"x-queue-position": position, "x-queue-wait": wait}
    assert queue_headers(record, now) == headers
