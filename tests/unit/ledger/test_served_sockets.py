"""The parent's sockets: connections end with them, however far they were made by then."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import uvloop

from tests.fixtures.stack import HANG_S
from triton_openai.proxy.ledger import parent_ledger
from triton_openai.proxy.ledger.in_process import InProcessLedger
from triton_openai.proxy.scheduling import parent_queues
from triton_openai.proxy.scheduling.limits import QueueLimits

TURNS = 6  # of the event loop: a connection is made after about three

Served = Callable[[Path], AbstractAsyncContextManager[None]]


def ledger(folder: Path) -> AbstractAsyncContextManager[None]:
    return parent_ledger.served(InProcessLedger(), folder)


def queues(folder: Path) -> AbstractAsyncContextManager[None]:
    return parent_queues.served(QueueLimits(), folder)


async def connect(served: Served, name: str, turns: int) -> bytes:
    """What the client reads at last from a parent that ends so many turns after it connected."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as client:
        async with served(Path(folder)):
            client.connect(str(Path(folder) / name))
            for _ in range(turns):
                await asyncio.sleep(0)
        client.setblocking(False)
        try:
            return await asyncio.wait_for(loop.sock_recv(client, 1), HANG_S)
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("turns", range(TURNS))
@pytest.mark.parametrize(
    ("served", "name"), [(ledger, parent_ledger.SOCKET), (queues, parent_queues.SOCKET)]
)
def test_a_connection_ends_with_the_parent_at_any_time(served: Served, name: str, turns: int):
    assert uvloop.run(connect(served, name, turns)) == b""
