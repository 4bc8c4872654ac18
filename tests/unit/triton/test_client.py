"""The wait for a guide that is compiled."""

from __future__ import annotations

import pytest

from proxy.domain.errors import DeadlineExceeded, GuidePending
from proxy.triton.client import FIRST_PAUSE_S, MAX_WAIT_S, GuideRetries
from tests.doubles import clock

PENDING = GuidePending("not yet")


async def waited(timeout_s: float, times: int) -> float:
    """Waits so often. Returns what is left."""
    made, left_s = GuideRetries(timeout_s), timeout_s
    for _ in range(times):
        left_s = await made.wait(PENDING)
    return left_s


def test_each_attempt_has_what_is_left_of_the_requests_time():
    left_s = clock.run(waited(10, times=3))
    assert left_s == pytest.approx(10 - 7 * FIRST_PAUSE_S)


def test_a_requests_time_ends_its_waiting():
    with pytest.raises(DeadlineExceeded):
        clock.run(waited(MAX_WAIT_S / 2, times=10_000))


def test_patience_ends_too_and_says_what_was_waited_for():
    with pytest.raises(GuidePending, match="not yet"):
        clock.run(waited(10 * MAX_WAIT_S, times=10_000))
