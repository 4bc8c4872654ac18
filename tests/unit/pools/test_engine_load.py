"""The load that engines report on a metrics port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.domain.endpoints import EngineLoad
from proxy.pools import engine_load
from proxy.pools.engine_load import UNKNOWN, LoadReader, MetricsParser, load_in, total

# As Triton writes them. `demo_engine` is one of ours, `tensorrt_llm` NVIDIA's, without `fraction`.
PAGE = """\
# HELP nv_trt_llm_request_metrics TRT LLM request metrics
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{request_type="context",model="tensorrt_llm",version="1"} 1
nv_trt_llm_request_metrics{request_type="scheduled",model="tensorrt_llm",version="1"} 7
nv_trt_llm_request_metrics{request_type="max",model="tensorrt_llm",version="1"} 64
nv_trt_llm_request_metrics{request_type="active",model="tensorrt_llm",version="1"} 9
nv_trt_llm_request_metrics{request_type="scheduled",model="demo_engine",version="1"} 3
nv_trt_llm_request_metrics{request_type="waiting",model="demo_engine",version="1"} 2
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 30
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 40
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="demo_engine"} 0.5
nv_inference_request_success{model="demo",version="1"} 5
"""


def parsed(page: bytes, *cuts: int) -> dict:
    parser = MetricsParser()
    ends = [*sorted(cut % (len(page) + 1) for cut in cuts), len(page)]
    start = 0
    for end in ends:
        parser.push(page[start:end])
        start = end
    return parser.models


def test_the_load_of_each_model_and_of_all():
    by_model = {name: load_in(values) for name, values in parsed(PAGE.encode()).items()}
    assert by_model == {
        "tensorrt_llm": EngineLoad(waiting=None, running=7, kv_in_use=0.75, is_stale=False),
        "demo_engine": EngineLoad(waiting=2, running=3, kv_in_use=0.5, is_stale=False),
    }
    assert total(by_model.values()) == EngineLoad(
        waiting=2, running=10, kv_in_use=0.75, is_stale=False
    )


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_the_result_is_the_same_however_the_page_is_cut(cuts):
    assert parsed(PAGE.encode(), *cuts) == parsed(PAGE.encode())


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "x", "", "1e999", "9" * 41])
def test_values_that_are_no_load_are_skipped(value):
    page = f'nv_trt_llm_request_metrics{{request_type="waiting",model="m"}} {value}\n'
    assert parsed(page.encode()) == {}


def test_a_page_of_millions_of_models_keeps_a_bounded_number():
    line = 'nv_trt_llm_request_metrics{{request_type="waiting",model="{}"}} 1\n'
    samples = parsed("".join(map(line.format, range(5_000))).encode())
    assert len(samples) == engine_load.MOST_MODELS


class Port:
    """A metrics port that answers with what `answer` returns, and a reader of it."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        self.now_s = 100.0
        self.requests: list[httpx.Request] = []
        self.answer = answer

    async def _answered(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answer(request)

    def reader(self) -> LoadReader:
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._answered))
        return LoadReader("http://h:8002/metrics", client, clock=lambda: self.now_s, timeout_s=0.5)


def page(_: httpx.Request) -> httpx.Response:
    async def content() -> AsyncIterator[bytes]:
        yield PAGE.encode()

    return httpx.Response(200, content=content())


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused", request=request)


def test_a_value_older_than_three_seconds_is_stale():
    port = Port(page)
    reader = port.reader()
    asyncio.run(reader.read())
    port.now_s += 3
    assert (reader.load.waiting, reader.load.running, reader.load.is_stale) == (2, 10, False)
    assert reader.load_of("demo_engine").running == 3
    assert reader.load_of("unknown") == UNKNOWN
    port.now_s += 0.01
    assert (reader.load.waiting, reader.load.is_stale) == (2, True)
    assert reader.load_of("demo_engine").is_stale
    assert port.requests[0].headers["accept-encoding"] == "identity"


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 65_536


async def silent() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refused, "connection refused"),
        (lambda _: httpx.Response(503), "503"),
        (lambda _: httpx.Response(200, content=endless()), "larger than 4000000 bytes"),
        (lambda _: httpx.Response(200, content=silent()), "no answer within 0.5 s"),
    ],
)
def test_a_failure_is_logged_once_and_so_is_its_end(answer, reason):
    port = Port(answer)
    reader = port.reader()

    async def read_again() -> None:
        await reader.read()
        await reader.read()
        port.answer = page
        await reader.read()
        await reader.read()

    with capture_logs() as lines:
        asyncio.run(read_again())
    assert [line["log_level"] for line in lines] == ["warning", "info"]
    assert reason in lines[0]["reason"]
    assert lines[0]["url"] == "http://h:8002/metrics"
    assert not reader.load.is_stale
