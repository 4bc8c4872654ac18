"""A short run of every target; `make fuzz` runs them for ten minutes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.long.fuzz.targets import every_target

TARGETS = every_target()


@pytest.mark.parametrize("name", TARGETS)
def test_it_holds_of_every_text(name):
    @settings(
        max_examples=2 if name == "cost" else 15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        TARGETS[name](data)

    run()
