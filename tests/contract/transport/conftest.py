"""The transport of token streams, on uvloop, as it runs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from proxy.triton.http2.connection import Call
from proxy.triton.streams.lean_http2 import LeanHttp2Streams, LeanOptions
from proxy.triton.streams.link import LeanStream, Link
from proxy.triton.target import Target

Connect = Callable[..., AbstractAsyncContextManager[LeanHttp2Streams]]


@pytest.fixture(scope="session", autouse=True)
def only_new_objects() -> None:
    """So that looking for leaks is quick."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def connect() -> Connect:
    """connect(port) -> streams to it, which leave nothing behind."""

    @asynccontextmanager
    async def to(
        port: int, options: LeanOptions | None = None, ca_file: Path | None = None
    ) -> AsyncIterator[LeanHttp2Streams]:
        """With a `ca_file` over TLS."""
        tasks = asyncio.all_tasks()
        target = Target(f"localhost:{port}", ca_file is not None, ca_file)
        async with LeanHttp2Streams(target, options) as streams:
            yield streams
        del streams
        assert_nothing_left(tasks)

    return to


def assert_nothing_left(tasks: set[asyncio.Task[None]]) -> None:
    """No task of ours, and nothing of a call or a connection."""
    new = asyncio.all_tasks() - tasks
    assert not [task for task in new if "/proxy/" in task.get_coro().cr_code.co_filename]
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, (Call, Link)) or is_open(one)]


def is_open(one: object) -> bool:
    return isinstance(one, LeanStream) and one.carrier is not None
