"""For all tests: how long httpx waits, how many examples hypothesis tries, what shares a worker."""

from __future__ import annotations

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG

from tests.fixtures.examples import register_profiles
from tests.fixtures.stack import HANG_S

pytest_plugins = ["tests.fixtures.running"]

# A busy machine may take longer to answer than httpx waits by itself, 5 s.
for phase in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, phase, HANG_S)

register_profiles()

# What takes seconds to start or build. A test that needs one runs where it is, and the other tests
# by the file (`--dist loadgroup` of pytest-xdist), so that no worker starts what another one has.
SHARED = ("triton", "scripted_stack", "victim", "fresh", "stack", "artifacts")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        group = next((name for name in SHARED if name in fixtures), item.location[0])
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))
