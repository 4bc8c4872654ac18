"""File descriptors: each client connection needs one, and the proxy some for itself."""

from __future__ import annotations

import contextlib
import resource

ENOUGH = 65_536
# for connections to Triton, the log, /proc, and what is opened briefly
OWN = 96


def for_clients() -> int:
    """How many connections this process may have. Raises the soft limit, usually 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < ENOUGH:
        raised = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit, too
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return max(1, soft - OWN)
