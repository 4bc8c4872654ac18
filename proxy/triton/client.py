"""Triton as an engine: one decoupled stream a request, and its stop.

This folder is the only importer of grpc. A stream that is closed early sends `stop` to the
engine model, because Triton does not pass a cancel on to a running ensemble step, and then comes
to its end by itself: a cancel that meets the end of its request can crash tritonserver (its issues
7368 and 8034). Errors are read from the stream's messages: with the header `triton_grpc_error`,
which would end a stream with a status, tritonserver 2.51 crashes when streams are cancelled
beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Literal

import grpc
import structlog
from tritonclient.grpc import service_pb2_grpc
from typing_extensions import Self

from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.errors import GuidePending
from triton_openai.proxy.domain.output import TokenDelta
from triton_openai.proxy.triton import codec, tensors
from triton_openai.proxy.triton.channel import channel
from triton_openai.proxy.triton.endings import Ending
from triton_openai.proxy.triton.errors import error_of_message, error_of_status, malformed
from triton_openai.proxy.triton.streams.grpc_aio import GrpcAioStreams
from triton_openai.proxy.triton.streams.lean_http2 import LeanHttp2Streams, LeanOptions
from triton_openai.proxy.triton.streams.port import (
    LET_GO_TIMEOUT_S,
    LeaseTerms,
    ResponseStream,
    StreamFailed,
    Streams,
)
from triton_openai.proxy.triton.target import Target
from triton_openai.proxy.triton.turns import Turns

logger = structlog.get_logger(__name__)

STOP_TIMEOUT_S = 5.0
Transport = Literal["lean", "grpc"]


class TritonClient:
    """Streams and their stops go over `transport`; the unary calls on `stub` over grpc.aio.

    `max_age_s`: of the connection that carries streams, see LeanOptions.
    """

    def __init__(
        self, target: Target, transport: Transport, *, max_age_s: float | None = None
    ) -> None:
        self.target = target.address
        self.restricted_metadata = target.restricted_metadata
        self._target = target
        self._transport: Transport = transport
        self._max_age_s = max_age_s
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Belongs to the running event loop. Connects by itself."""
        self._resources = AsyncExitStack()
        enter = self._resources.enter_async_context
        opened = await enter(channel(self._target))
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        self._streams = self._over(opened)
        await enter(self._streams)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Waits for stops under way, then closes the connections."""
        if self._background:
            await asyncio.wait(self._background, timeout=STOP_TIMEOUT_S)
        await self._resources.aclose()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        """See domain.engine.Engine. A call that meets its deadline is cancelled by the server, too,
        so it has time left for a stop when the request has none.
        """
        asked, turns = codec.encode(request), Turns(request.timeout_s)
        terms = _lease_terms(request)
        while True:
            timeout_s = turns.left_s + LET_GO_TIMEOUT_S
            stream = self._streams.open(asked, timeout_s=timeout_s, terms=terms)
            ending = Ending(request) if tensors.is_cpp(request.model.facts) else None
            has_begun = has_ended = False  # ended in the engine: nothing is left to stop
            try:
                async for response in stream:
                    has_begun = True
                    if response.error_message:
                        has_ended = True
                        raise error_of_message(response.error_message)
                    message = codec.decode(response.infer_response)
                    if ending is not None:
                        message = ending.push(message)
                    if message.delta is not None:
                        has_ended = message.delta.finish is not None
                        yield message.delta
                    if message.is_final:
                        return
                return
            except GuidePending as error:
                pending = error
            except StreamFailed as error:
                raise error_of_status(error.code, error.details) from error
            except codec.MalformedResponse as error:
                raise malformed(str(error)) from error
            finally:
                if has_ended:
                    stream.let_go()
                else:
                    self._leave(stream, request, has_begun=has_begun)
            await turns.wait(pending)

    def _leave(self, stream: ResponseStream, request: EngineRequest, *, has_begun: bool) -> None:
        """NVIDIA's C++ backend passes over a stop that comes before its request, which a cancel
        catches between the ensemble's steps; our engines remember such stops.
        """
        stop = stream.beside(codec.encode_stop(request), timeout_s=STOP_TIMEOUT_S)
        if has_begun or not tensors.is_cpp(request.model.facts):
            stream.let_go()
        else:
            stream.cancel()
        self._in_background(_read_out(stop, request.id))

    def _over(self, opened: grpc.aio.Channel) -> Streams:
        if self._transport == "grpc":
            return GrpcAioStreams(opened)
        return LeanHttp2Streams(self._target, LeanOptions(max_age_s=self._max_age_s))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs beyond the request it belongs to, which may be cancelled at any point."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _lease_terms(request: EngineRequest) -> LeaseTerms | None:
    """None where the engine knows no leases."""
    facts = request.model.facts
    if not facts.has_leases:
        return None
    return LeaseTerms(facts.engine_model, partial(codec.encode_lease, request))


async def _read_out(stop: ResponseStream, request_id: str) -> None:
    """One that fails is logged: the engine then runs to its token limit."""
    try:
        async for _ in stop:
            pass
    except StreamFailed as error:
        logger.warning("stop failed", request_id=request_id, error=error.details)
