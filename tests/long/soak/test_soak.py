"""SOAK_SECONDS of mixed streams leave nothing behind; and what leaks is found."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.long.soak.callers import KINDS
from tests.long.soak.footprint import GROWN_BYTES, Footprint, faults, growth
from tests.long.soak.soak import soaked

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))
SAMPLES = 40


@pytest.mark.xdist_group("hostile")
def test_mixed_streams_leave_nothing_behind():
    report = soaked(SECONDS)
    assert not report.faults, str(report)
    assert report.counts.keys() == {kind.__name__ for kind in KINDS}


def footprint(rss_bytes: float = 0, descriptors: int = 5, threads: int = 2) -> Footprint:
    return Footprint(
        Counter(proxy=int(rss_bytes)), Counter(proxy=descriptors), Counter(proxy=threads)
    )


def samples(a_sample: float, *, caches: float = 0) -> list[Footprint]:
    """Memory that grows by so much from one to the next, and by caches in the first quarter."""
    return [footprint(a_sample * at + caches * min(1, 4 * at / SAMPLES)) for at in range(SAMPLES)]


def test_memory_that_grows_with_the_requests_is_found():
    idle = footprint()
    (fault,) = faults(samples(3 * GROWN_BYTES / SAMPLES), idle, idle)
    assert "proxy has grown" in fault
    assert not faults(samples(GROWN_BYTES / SAMPLES / 2), idle, idle)


def test_caches_that_fill_up_are_no_growth():
    assert growth(samples(0, caches=10 * GROWN_BYTES))["proxy"] < GROWN_BYTES / 2


@pytest.mark.parametrize("left", [{"descriptors": 20}, {"threads": 20}])
def test_what_is_not_given_back_is_found(left):
    (fault,) = faults(samples(0), footprint(), footprint(**left))
    assert "proxy has 20" in fault
