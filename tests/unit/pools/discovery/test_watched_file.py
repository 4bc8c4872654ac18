"""watched_file: a file that is written, replaced, broken and removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.source_url import parse
from proxy.pools.discovery.watched_file import (
    MOST_BYTES,
    WatchedFile,
)
from tests.doubles.watched_source import until, watched

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "endpoints"


def replace(path: Path, content: bytes) -> None:
    """At once: a file that is truncated first may be read in between."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.rename(path)


def source(path: Path) -> WatchedFile:
    return WatchedFile(parse(f"file+grpc://{path}"), poll_s=0.01)


async def test_lines_comments_and_changes(path):
    path.write_text("# Tritons\n\none:8001\n two:8001?metrics=8012  # the second\r\n")
    async with watched(source(path)) as watching:
        two = EndpointAddress("two:8001", 8012)
        assert await watching.endpoints() == {EndpointAddress("one:8001"), two}
        path.write_text("six:8001\n")
        assert await watching.addresses() == ["six:8001"]
        path.write_text("ten:8001\n")  # as long as before
        assert await watching.addresses() == ["ten:8001"]
        path.write_text("")
        assert await watching.addresses() == []


async def test_a_file_that_is_replaced_by_one_with_the_same_time_and_size(path, tmp_path):
    path.write_text("one:8001\n")
    os.utime(path, (1, 1))
    async with watched(source(path)) as watching:
        await watching.endpoints()
        other = tmp_path / "other"
        other.write_text("two:8001\n")
        os.utime(other, (1, 1))
        other.rename(path)
        assert await watching.addresses() == ["two:8001"]


async def test_a_file_that_does_not_exist_yet(path):
    with capture_logs() as logs:
        async with watched(source(path)) as watching:
            coming = watching.read_ahead()
            await until(lambda: len(logs) >= 1)
            replace(path, b"one:8001")
            assert await coming == {EndpointAddress("one:8001")}
    assert logs[0]["reason"] == f"{path}: No such file or directory"
    assert [each["log_level"] for each in logs] == ["warning", "info"]


async def test_a_file_that_goes_and_comes_back(path, tmp_path):
    path.write_text("one:8001")
    os.utime(path, (1, 1))
    with capture_logs() as logs:
        async with watched(source(path)) as watching:
            await watching.endpoints()
            coming = watching.read_ahead()
            path.rename(tmp_path / "away")
            await until(lambda: len(logs) >= 1)
            (tmp_path / "away").rename(path)
            await until(lambda: len(logs) >= 2)
            assert not coming.done(), "the endpoints are the same"
    assert logs[1]["event"] == "endpoints can be found again"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"one:8001\nwrong\n", "line 2: 'wrong' has no port"),
        (b"grpc://one:8001\n", "line 1: "),
        (b"\n\n\xff\n", "line 3: it is not UTF-8"),
        (b"#" * (MOST_BYTES + 1), "has more than 1,000,000 bytes"),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_a_wrong_file_keeps_the_endpoints(path, content, reason):
    path.write_text("one:8001\n")
    with capture_logs() as logs:
        async with watched(source(path)) as watching:
            await watching.endpoints()
            coming = watching.read_ahead()
            replace(path, content)
            await until(lambda: len(logs) >= 1)
            assert not coming.done()
            replace(path, b"two:8001\n")
            assert await coming == {EndpointAddress("two:8001")}
    assert str(path) in logs[0]["reason"]
    assert reason in logs[0]["reason"]


async def test_a_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    with capture_logs() as logs:
        async with watched(source(path)) as watching:
            watching.read_ahead()
            await until(lambda: len(logs) >= 1)
    assert "is not a regular file" in logs[0]["reason"]
