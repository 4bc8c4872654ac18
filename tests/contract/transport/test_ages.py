"""Several servers behind one address: which of them a call reaches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tritonclient.grpc import service_pb2

from proxy.triton.streams.lean_http2 import LeanHttp2Streams, LeanOptions
from proxy.triton.target import Target
from tests.contract.transport.calling import Outcome, open_call, outcome, read_out
from tests.doubles.http2_peer import Peer, PeerConnection, data, response

pytestmark = pytest.mark.anyio

AGE_S = 0.1


def server(name: str):
    """Answers each call with its own name; `slow` only begins, and ends with `stop`."""

    async def script(peer: PeerConnection) -> None:
        await peer.shake_hands()
        slow = 0
        while True:
            request = await peer.request()
            if request.id == "slow":
                slow = request.stream
                peer.send(peer.head(slow), data(slow, response(name)))
                continue
            peer.send(peer.answer(request.stream, response(name)))
            if request.id == "stop" and slow:
                peer.send(data(slow, response(f"{name} again")), peer.trailers(slow))

    return script


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[LeanHttp2Streams]:
    options = LeanOptions(max_age_s=AGE_S, backoff_s=(0.02, 0.05))
    async with LeanHttp2Streams(Target(f"localhost:{port}"), options) as streams:
        yield streams


async def until_another_answers(streams: LeanHttp2Streams, name: str) -> str:
    while True:
        (found,) = (await outcome(streams)).ids
        if found != name:
            return found
        await asyncio.sleep(0.01)


async def test_a_connection_of_age_hands_over_to_another_and_ends():
    async with Peer(server("first"), server("second")) as peer, connected(peer.port) as streams:
        assert await outcome(streams) == Outcome(["first"])
        assert await until_another_answers(streams, "first") == "second"
        await peer.connections[0].closed()


async def test_its_streams_go_on_and_what_is_beside_them_reaches_their_server():
    async with Peer(server("first"), server("second")) as peer, connected(peer.port) as streams:
        running = open_call(streams, "slow")
        assert (await anext(running)).infer_response.id == "first"
        assert await until_another_answers(streams, "first") == "second"
        stop = running.open_sibling(service_pb2.ModelInferRequest(id="stop"), timeout_s=5)
        assert await read_out(stop) == Outcome(["first"])
        assert await read_out(running) == Outcome(["first again"])
        await peer.connections[0].closed()


async def test_beside_a_stream_that_is_over_any_server_will_do():
    async with Peer(server("first"), server("second")) as peer, connected(peer.port) as streams:
        ended = open_call(streams)
        assert await read_out(ended) == Outcome(["first"])
        await until_another_answers(streams, "first")
        late = ended.open_sibling(service_pb2.ModelInferRequest(id="stop"), timeout_s=5)
        assert await read_out(late) == Outcome(["second"])


async def test_where_no_other_can_be_had_the_old_one_stays():
    async def refusing(peer: PeerConnection) -> None:
        """Is gone at once."""

    async with (
        Peer(server("first"), refusing, refusing, server("second")) as peer,
        connected(peer.port) as streams,
    ):
        assert await outcome(streams) == Outcome(["first"])
        while len(peer.connections) < 3:
            assert await outcome(streams) == Outcome(["first"])
            await asyncio.sleep(0.01)
        assert await until_another_answers(streams, "first") == "second"


async def test_beside_means_the_same_connection_for_both_transports(connect):
    async with Peer(server("first")) as peer, connect(peer.port) as streams:
        running = open_call(streams, "slow")
        assert (await anext(running)).infer_response.id == "first"
        stop = running.open_sibling(service_pb2.ModelInferRequest(id="stop"), timeout_s=5)
        assert await read_out(stop) == Outcome(["first"])
        assert await read_out(running) == Outcome(["first again"])
        assert len(peer.connections) == 1
