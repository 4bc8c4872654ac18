"""File descriptors: each connection of a client takes one, and the proxy needs some for itself."""

from __future__ import annotations

import contextlib
import resource

ENOUGH = 65_536
# Triton's connections, the log, /proc, the files of the metrics; what is opened in passing.
OWN = 96


def for_clients() -> int:
    """Connections that a process may have. Raises its soft limit, 1,024 on most systems, first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < ENOUGH:
        raised = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has another limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return max(1, soft - OWN)
