"""Requests are found in every process of a proxy, whatever became of the others."""

from __future__ import annotations

import socket

import pytest
import structlog
from triton_openai.proxy.request_search import SOCKET, RequestSearch

from triton_openai.proxy.domain.timeline import Timeline
from triton_openai.proxy.telemetry.recent_requests import RecentRequests, RequestFilter

ANY = RequestFilter()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def end(recent: RecentRequests, request_id: str, *, at_s: int, model: str = "demo") -> None:
    timeline = Timeline()
    timeline.began_ns = at_s * 10**9
    timeline.end()
    with structlog.contextvars.bound_contextvars(request_id=request_id):
        recent.ended(timeline, {"path": "/v1/completions", "model": model, "duration_ms": 5.0})


@pytest.mark.anyio
async def test_each_process_finds_the_requests_of_all(tmp_path):
    first, second = RecentRequests(10), RecentRequests(10)
    for number in range(4):
        end((first, second)[number % 2], f"r{number}", at_s=number)
    end(second, "large", at_s=9, model="large")
    async with RequestSearch(first, tmp_path) as one, RequestSearch(second, tmp_path) as two:
        for search in (one, two):
            for number in range(4):
                found = await search.find(f"r{number}")
                assert [each["id"] for each in found.requests] == [f"r{number}"]
                assert found.requests[0]["stages"] == []
            assert (await search.find("r4")).requests == []
            listed = await search.last(RequestFilter(model="demo"), 3)
            assert [each["id"] for each in listed.requests] == ["r3", "r2", "r1"]
            assert listed.silent == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.anyio
async def test_a_process_that_died_is_passed_over_and_one_that_hangs_is_counted(tmp_path):
    dead, hanging = (socket.socket(socket.AF_UNIX) for _ in range(2))
    dead.bind(str(tmp_path / f"{SOCKET}dead"))
    dead.close()
    hanging.bind(str(tmp_path / f"{SOCKET}hanging"))
    hanging.listen()
    recent = RecentRequests(10)
    end(recent, "mine", at_s=1)
    async with RequestSearch(recent, tmp_path, answer_s=0.2) as search:
        found = await search.last(ANY, 10)
        assert ([each["id"] for each in found.requests], found.silent) == (["mine"], 1)
        missing = await search.find("theirs")
        assert (missing.requests, missing.silent) == ([], 1)
    hanging.close()


@pytest.mark.anyio
async def test_one_process_needs_no_socket(tmp_path):
    recent = RecentRequests(10)
    end(recent, "r", at_s=1)
    async with RequestSearch(recent, None) as search:
        assert (await search.find("r")).requests[0]["id"] == "r"
        assert (await search.find("s")).requests == []
