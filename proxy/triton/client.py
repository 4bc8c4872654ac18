"""Streams to Triton over grpc.aio: one decoupled stream a request, and its stop.

This folder is the only importer of grpc. A stream that is closed early also sends `stop` to
the engine model, because Triton does not pass a cancel on to a running ensemble step. Errors are
read from the stream's messages: with the header `triton_grpc_error`, which would end a stream
with a status, tritonserver 2.51 crashes when streams are cancelled beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import grpc
import structlog
from tritonclient.grpc import service_pb2, service_pb2_grpc
from typing_extensions import Self

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import EngineFailed
from proxy.domain.output import TokenDelta
from proxy.triton import codec, tensors
from proxy.triton.endings import Ending
from proxy.triton.errors import error_of_message, error_of_status

logger = structlog.get_logger(__name__)

STOP_TIMEOUT_S = 5.0
DRAIN_TIMEOUT_S = 5.0
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class TritonClient:
    """One channel, shared by all streams. `stub` serves the catalog's unary calls."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Opens the channel, which belongs to the running event loop. Connects by itself."""
        self._channel = grpc.aio.insecure_channel(self.target, options=CHANNEL_OPTIONS)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Waits for stops under way, then closes the channel."""
        if self._background:
            await asyncio.wait(self._background, timeout=STOP_TIMEOUT_S)
        await self._channel.close()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        """See domain.engine.Engine."""
        call = self._open(codec.encode(request), timeout_s=request.timeout_s)
        ending = Ending(request) if tensors.is_cpp(request.model.facts) else None
        has_ended = False  # in the engine; then there is nothing left to stop
        try:
            async for response in call:
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
        except grpc.aio.AioRpcError as error:
            raise error_of_status(error) from error
        except codec.MalformedResponse as error:
            raise EngineFailed(f"Triton's answer is outside the contract: {error}") from error
        finally:
            if has_ended:
                self._in_background(_drain(call))
            else:
                call.cancel()
                self._in_background(self._stop(request))

    def _open(self, message: service_pb2.ModelInferRequest, *, timeout_s: float) -> Any:
        async def once() -> AsyncGenerator[service_pb2.ModelInferRequest, None]:
            yield message

        return self.stub.ModelStreamInfer(once(), timeout=timeout_s)

    async def _stop(self, request: EngineRequest) -> None:
        """A stop that fails is logged: the engine then runs to its token limit."""
        try:
            await _read_out(self._open(codec.encode_stop(request), timeout_s=STOP_TIMEOUT_S))
        except grpc.aio.AioRpcError as error:
            logger.warning("stop failed", request_id=request.id, error=error.details())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs beyond the request it belongs to, which may be cancelled at any point."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _drain(call: Any) -> None:
    """Reads a finished stream to its end mark, which may come as a message of its own."""
    try:
        await asyncio.wait_for(_read_out(call), DRAIN_TIMEOUT_S)
    except (grpc.aio.AioRpcError, asyncio.TimeoutError):
        call.cancel()


async def _read_out(call: Any) -> None:
    async for _ in call:
        pass
