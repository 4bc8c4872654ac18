"""What a streamed answer shows of its place in the queue, before its first part and after."""

from __future__ import annotations

from proxy.api.http.own_headers import queue_headers
from proxy.domain.record import RequestRecord, Wait
from proxy.domain.scheduling import Standing


def test_an_answer_that_has_waited_says_how_long():
    headers = queue_headers(RequestRecord(queue_s=1.23456), 5.0)
    assert headers == {"x-queue-position": "0", "x-queue-wait": "1.235"}


def test_one_that_waits_again_says_its_longest_wait():
    record = RequestRecord(queue_s=2.0, waits={"one": Wait(Standing(3, None), 10.0, 10.0)})
    assert queue_headers(record, 11.5) == {"x-queue-position": "3", "x-queue-wait": "2.000"}
    assert queue_headers(record, 12.5) == {"x-queue-position": "3", "x-queue-wait": "2.500"}


def test_one_that_still_waits_says_how_long_it_will_probably_have_waited():
    record = RequestRecord(waits={"one": Wait(Standing(3, 7.0), 10.0, 11.0)})
    assert queue_headers(record, 11.5) == {"x-queue-position": "3", "x-queue-wait": "8.000"}
    assert queue_headers(record, 19.0) == {"x-queue-position": "3", "x-queue-wait": "9.000"}
