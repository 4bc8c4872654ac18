"""gRPC and Triton failures -> the proxy's errors, in one place."""

from __future__ import annotations

import json
import re

import grpc

from proxy.domain.errors import (
    DeadlineExceeded,
    EngineFailed,
    GuidePending,
    InvalidRequest,
    ModelUnavailable,
    ProxyError,
    RateLimited,
)

UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
NOT_LOADED = re.compile(
    r"unknown model|is not ready|is not healthy|no available versions|Server is stopping"
)
# Triton's queue policy, and TensorRT-LLM's executor, which the C++ backend hands the limit to.
QUEUE_FULL = re.compile(r"maximum queue size", re.IGNORECASE)


def error_of_status(code: grpc.StatusCode, details: str) -> ProxyError:
    """The connection's own end: Triton is away, or the call's time is over."""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded("The request took longer than allowed and was stopped.")
    if code in UNREACHABLE:
        return ModelUnavailable(f"The model server is not available at present: {details}")
    return EngineFailed(f"The model server failed ({code.name}): {details}")


def error_of_call(error: grpc.aio.AioRpcError) -> ProxyError:
    """A unary call's end: the connection's, or what Triton says of the request."""
    code, details = error.code(), error.details() or ""
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, *UNREACHABLE):
        return error_of_status(code, details)
    return error_of_message(details or code.name)


def error_of_message(message: str) -> ProxyError:
    """What Triton says inside a stream; a refusal of our tokenizer is JSON behind a prefix."""
    if refusal := _refusal(message):
        return refusal
    if QUEUE_FULL.search(message):
        return RateLimited(
            "The queue of this model is full. Send the request again later.", code="queue_full"
        )
    if NOT_LOADED.search(message):
        return ModelUnavailable(f"The model is not available at present: {message}")
    return EngineFailed(f"The model server failed: {message}")


def _refusal(message: str) -> ProxyError | None:
    """`in ensemble 'demo', {"code": …, "param": …, "message": …}`"""
    try:
        fields = json.loads(message[message.index("{") :])
        if fields["code"] == "queue_full":
            return RateLimited(fields["message"], code="queue_full")
        if fields["code"] == "guide_pending":
            return GuidePending(f"Too much is asked for at once: {fields['message']}.")
        return InvalidRequest(fields["message"], code=fields["code"], param=fields["param"])
    except (ValueError, KeyError, TypeError):
        return None
