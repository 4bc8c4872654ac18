"""The mark that a Triton is draining: its launcher sets it, every proxy's readiness reads it.

Triton itself cannot drain: at SIGTERM it stops sending the responses of running streams at once,
and unloading an ensemble ends its streams. The mark is a registered region of shared memory,
because that is the only thing that Triton stores for clients and lists to them (behind the
launcher's secret). The region's content is never read.
"""

from __future__ import annotations

from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from proxy.triton.target import Target, channel

NAME = "triton-openai-draining"
TIMEOUT_S = 5.0


async def set_mark(target: Target, key: str) -> str | None:
    """Returns why Triton refused it, or None.

    key: of a region of at least one byte, see shm_open(3).
    """
    request = service_pb2.SystemSharedMemoryRegisterRequest(name=NAME, key=key, byte_size=1)
    async with channel(target) as opened:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        try:
            await stub.SystemSharedMemoryRegister(
                request, timeout=TIMEOUT_S, metadata=target.restricted_metadata
            )
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
    return None


async def is_set(stub: Any, metadata: tuple[tuple[str, str], ...]) -> bool:
    """Whether this Triton is draining; False if the call fails, or Triton does not implement it."""
    request = service_pb2.SystemSharedMemoryStatusRequest()
    try:
        answer = await stub.SystemSharedMemoryStatus(request, timeout=TIMEOUT_S, metadata=metadata)
    except grpc.aio.AioRpcError:
        return False
    return NAME in answer.regions
