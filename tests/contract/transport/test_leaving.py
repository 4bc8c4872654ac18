"""Who leaves a generation stops the engine, and cancels no stream: that can crash tritonserver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from tritonclient.grpc import service_pb2

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import DeadlineExceeded
from proxy.domain.output import TokenDelta
from proxy.domain.request import Sampling
from proxy.triton.client import TritonClient
from proxy.triton.target import Target
from tests.doubles.engine import CARD
from tests.doubles.http2_peer import Peer, PeerConnection, data
from tests.fixtures.engine_streams import limited

pytestmark = pytest.mark.anyio

PLAIN = replace(CARD, capabilities=CARD.capabilities - {"receipt"})
REQUEST = EngineRequest(id="r", model=PLAIN, text="x", timeout_s=0.5, sampling=Sampling())
TOKEN = b"\x01\0\0\0a"  # as Triton writes a tensor of strings


def answer(*, final: bool) -> bytes:
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.parameters["triton_final_response"].bool_param = final
    if not final:
        message.infer_response.outputs.add(name="text_output")
        message.infer_response.raw_output_contents.append(TOKEN)
    return message.SerializeToString()


async def leave(deltas: AsyncGenerator[TokenDelta, None]) -> None:
    assert (await anext(deltas)).token_bytes == (b"a",)
    await deltas.aclose()


async def hang_up(deltas: AsyncGenerator[TokenDelta, None]) -> None:
    await anext(deltas)
    waiting = asyncio.ensure_future(anext(deltas))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def run_out_of_time(deltas: AsyncGenerator[TokenDelta, None]) -> None:
    with pytest.raises(DeadlineExceeded):
        async for _ in limited(deltas, silence_s=9, whole_s=REQUEST.timeout_s):
            pass


@pytest.mark.parametrize("end", [leave, hang_up, run_out_of_time])
async def test_a_stream_that_is_left_early_ends_by_itself(end):
    stopped = []

    async def generating(peer: PeerConnection) -> None:
        await peer.shake_hands()
        asked = await peer.request()
        peer.send(peer.head(asked.stream), data(asked.stream, answer(final=False)))
        stop = await peer.request()
        body = service_pb2.ModelInferRequest.FromString(bytes(stop.body[5:]))
        stopped.append((body.id, body.inputs[-1].name))
        peer.send(data(asked.stream, answer(final=False), answer(final=True)))
        peer.send(peer.trailers(asked.stream), peer.answer(stop.stream, answer(final=True)))
        await peer.closed()

    async with Peer(generating) as peer:
        target = Target(f"localhost:{peer.port}")
        async with TritonClient(target) as client:
            await end(client.generate(REQUEST))
        assert stopped == [("r", "stop")]
        assert not peer.connections[0].resets


async def test_what_a_cpp_backend_has_not_begun_is_cancelled():
    """It passes over a stop of what it does not know yet."""
    card = replace(CARD, facts=replace(CARD.facts, runtime="tensorrtllm"))
    reset = asyncio.Event()

    async def waiting(peer: PeerConnection) -> None:
        await peer.shake_hands()
        asked = await peer.request()
        stop = await peer.request()
        await peer.until(lambda: asked.stream in peer.resets)
        reset.set()
        peer.send(peer.answer(stop.stream, answer(final=True)))
        await peer.closed()

    async with Peer(waiting) as peer:
        target = Target(f"localhost:{peer.port}")
        async with TritonClient(target) as client:
            first = asyncio.ensure_future(anext(client.generate(replace(REQUEST, model=card))))
            await asyncio.sleep(0.2)
            first.cancel()
            await asyncio.wait_for(reset.wait(), 5)
