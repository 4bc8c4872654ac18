"""SOAK_SECONDS of mixed streams leave nothing behind."""

from __future__ import annotations

import os

import pytest

from tests.long.soak.callers import KINDS
from tests.long.soak.soak import soaked

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))


@pytest.mark.xdist_group("hostile")
def test_mixed_streams_leave_nothing_behind():
    report = soaked(SECONDS)
    assert not report.faults, str(report)
    assert report.counts.keys() == {kind.__name__ for kind in KINDS}
