"""guide_retries: how long a request waits until its guide is compiled."""

from __future__ import annotations

import asyncio

import pytest

from triton_openai.proxy.domain.errors import DeadlineExceeded, GuidePending
from triton_openai.proxy.triton import guide_retries
from triton_openai.proxy.triton.guide_retries import GuideRetries

PENDING = GuidePending("not yet")


async def waited(timeout_s: float, times: int) -> GuideRetries:
    made = GuideRetries(timeout_s)
    for _ in range(times):
        await made.wait(PENDING)
    return made


def test_each_attempt_has_what_is_left_of_the_requests_time():
    left_s = asyncio.run(waited(10, times=3)).left_s
    assert 0 < left_s <= 10 - 7 * guide_retries.FIRST_PAUSE_S


def test_a_requests_time_ends_its_waiting():
    with pytest.raises(DeadlineExceeded):
        asyncio.run(waited(0.1, times=100))


def test_patience_ends_too_and_says_what_was_waited_for(monkeypatch):
    monkeypatch.setattr(guide_retries, "MAX_WAIT_S", 0.1)
    with pytest.raises(GuidePending, match="not yet"):
        asyncio.run(waited(10, times=100))
