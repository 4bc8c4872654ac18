"""For all tests: a busy machine may take longer to answer than httpx waits by itself, 5 s."""

from __future__ import annotations

from httpx._config import DEFAULT_TIMEOUT_CONFIG

from tests.fixtures.stack import HANG_S

for phase in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, phase, HANG_S)
