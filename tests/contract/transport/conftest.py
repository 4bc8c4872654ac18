"""One suite for both adapters of the stream transport; the lean one on uvloop, as it runs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from proxy.triton.http2.calls import Call
from proxy.triton.streams.grpc_aio import GrpcAioStreams, channel
from proxy.triton.streams.lean_http2 import LeanHttp2Streams, LeanOptions
from proxy.triton.streams.lean_stream import LeanStream
from proxy.triton.streams.link import Link
from proxy.triton.streams.port import Streams
from proxy.triton.target import Target

Connect = Callable[..., AbstractAsyncContextManager[Streams]]


@pytest.fixture(scope="session", autouse=True)
def only_new_objects() -> None:
    """So that looking for leaks is quick."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["lean", "grpc"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def is_lean(transport: str) -> bool:
    return transport == "lean"


@pytest.fixture
def anyio_backend(transport: str) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": transport == "lean"}


@pytest.fixture
def connect(is_lean: bool) -> Connect:
    """connect(port) -> streams to it, which leave nothing behind; options are those of lean."""

    @asynccontextmanager
    async def to(
        port: int, options: LeanOptions | None = None, ca_file: Path | None = None
    ) -> AsyncIterator[Streams]:
        """With a `ca_file` over TLS."""
        tasks = asyncio.all_tasks()
        target = Target(f"localhost:{port}", ca_file is not None, ca_file)
        if is_lean:
            async with LeanHttp2Streams(target, options) as streams:
                yield streams
        else:
            async with channel(target) as opened, GrpcAioStreams(opened) as streams:
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
