from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_errors_of_the_event_loop(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Such as an exception in a callback, or one that nobody has looked at."""
    yield
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
