"""grpc.aio: the channel for unary calls, and streams over it with TRITON_TRANSPORT=grpc."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from typing_extensions import Self

from proxy.triton.streams.leases import PARAMETER, Cancel, Leases, log_refusal
from proxy.triton.streams.port import (
    MAX_RESPONSE_BYTES,
    RELEASE_TIMEOUT_S,
    LeaseTerms,
    Metadata,
    StreamFailed,
)
from proxy.triton.target import Target

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),  # in effect the timeout of one attempt to connect
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)


def channel(target: Target) -> grpc.aio.Channel:
    """Bound to the running event loop. Connects when it is needed."""
    if not target.is_tls:
        return grpc.aio.insecure_channel(target.address, options=OPTIONS)
    trusted = None if target.ca_file is None else target.ca_file.read_bytes()
    credentials = grpc.ssl_channel_credentials(root_certificates=trusted)
    options: tuple[tuple[str, int | str], ...] = OPTIONS
    if target.certified_name is not None:
        options += (("grpc.ssl_target_name_override", target.certified_name),)
    return grpc.aio.secure_channel(target.address, credentials, options=options)


class GrpcAioStream:
    """See port.ResponseStream."""

    def __init__(
        self, home: GrpcAioStreams, call: Any, background: set[asyncio.Task[None]]
    ) -> None:
        self._home = home
        self._call = call
        self._background = background
        self._reading: asyncio.Task[Any] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> service_pb2.ModelStreamInferResponse:
        try:
            response = await self._response()
            if response is None:  # grpc.aio has logged why
                self._call.cancel()
                raise StreamFailed(grpc.StatusCode.INTERNAL, "a message cannot be parsed")
            if response is not grpc.aio.EOF:
                return response
            code, details = await self._call.code(), await self._call.details()
        except grpc.aio.AioRpcError as error:
            raise StreamFailed(error.code(), error.details() or "") from error
        if code is not grpc.StatusCode.OK:
            raise StreamFailed(code, details)
        raise StopAsyncIteration

    def open_sibling(
        self, request: service_pb2.ModelInferRequest, *, timeout_s: float
    ) -> GrpcAioStream:
        """The channel has a single connection."""
        return self._home.open(request, timeout_s=timeout_s)

    def cancel(self) -> None:
        self._call.cancel()

    async def _response(self) -> Any:
        """A cancelled read is kept for the next one, because grpc.aio would cancel the call."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._call.read())
        reading = self._reading
        try:
            return await asyncio.shield(reading)
        finally:
            if reading.done():
                self._reading = None

    def release(self) -> None:
        task = asyncio.get_running_loop().create_task(self._drain())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _drain(self) -> None:
        try:
            await asyncio.wait_for(self._read_out(), RELEASE_TIMEOUT_S)
        except (StreamFailed, asyncio.TimeoutError):
            self._call.cancel()

    async def _read_out(self) -> None:
        async for _ in self:
            pass


class GrpcAioStreams:
    """See port.Streams. Does not close the channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._background: set[asyncio.Task[None]] = set()
        self._leases = Leases(self._hold)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Waits for the released streams."""
        self._leases.close()
        if self._background:
            await asyncio.wait(self._background, timeout=RELEASE_TIMEOUT_S)

    def open(
        self,
        request: service_pb2.ModelInferRequest,
        *,
        timeout_s: float,
        terms: LeaseTerms | None = None,
        metadata: Metadata = (),
    ) -> GrpcAioStream:
        if terms is not None:
            request.parameters[PARAMETER].string_param = self._leases.enter(terms)
        call = self._call(request, timeout_s, metadata)
        if terms is not None:
            call.add_done_callback(lambda _: self._leases.leave(terms))
        return GrpcAioStream(self, call, self._background)

    def _call(
        self,
        request: service_pb2.ModelInferRequest,
        timeout_s: float | None,
        metadata: Metadata = (),
    ) -> Any:
        async def once() -> AsyncGenerator[service_pb2.ModelInferRequest, None]:
            yield request

        return self._stub.ModelStreamInfer(once(), timeout=timeout_s, metadata=metadata)

    def _hold(self, request: service_pb2.ModelInferRequest, ended: Callable[[], None]) -> Cancel:
        call = self._call(request, None)
        reading = asyncio.get_running_loop().create_task(_read_refusal(call))
        self._background.add(reading)
        reading.add_done_callback(self._background.discard)
        reading.add_done_callback(lambda _: ended())
        return reading.cancel


async def _read_refusal(call: Any) -> None:
    """Reads a lease's call to its end. If it is cancelled, it cancels the call."""
    try:
        while (response := await call.read()) not in (None, grpc.aio.EOF):
            log_refusal(response.SerializeToString())
    except grpc.aio.AioRpcError:
        pass  # the streams of this connection report it
    finally:
        call.cancel()
