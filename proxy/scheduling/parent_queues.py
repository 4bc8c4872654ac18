"""The parent's end: it owns the queues, and its workers reach them over a Unix socket.

Started by http_server.workers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from triton_openai.proxy.scheduling.limits import QueueLimits

SOCKET = "queues"  # in the folder that the workers share


@asynccontextmanager
async def served(limits: QueueLimits, folder: Path) -> AsyncIterator[None]:
    """Serves the queues to this parent's workers, in a folder that only its user may enter."""
    raise NotImplementedError
    yield
