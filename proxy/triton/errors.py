"""gRPC and Triton failures -> the proxy's errors, in one place."""

from __future__ import annotations

import json
import re

import grpc

from triton_openai.proxy.domain.errors import (
    ECHO_AT_MOST,
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


# What our own tokenizer and engine refuse a request with.
REFUSALS = frozenset(
    {
        *("invalid_parameter", "context_length_exceeded", "guide_pending"),
        *("guide_too_slow", "queue_full", "deadline_exceeded"),
    }
)
LONGEST_REFUSAL = 2_000  # characters
UNAVAILABLE = "The model is not available at present."
FAILED = "The model server failed."
TOO_LONG = "The request took longer than allowed and was stopped."


def error_of_status(code: grpc.StatusCode, details: str) -> ProxyError:
    """The connection's own end: Triton is away, or the call's time is over."""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(TOO_LONG)
    detail = f"{code.name}: {details}"
    if code in UNREACHABLE:
        return ModelUnavailable(UNAVAILABLE, detail=detail)
    return EngineFailed(FAILED, detail=detail)


def error_of_call(error: grpc.aio.AioRpcError) -> ProxyError:
    """A unary call's end: the connection's, or what Triton reports about the request."""
    code, details = error.code(), error.details() or ""
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, *UNREACHABLE):
        return error_of_status(code, details)
    return error_of_message(details or code.name)


def error_of_message(message: str) -> ProxyError:
    """What Triton reports inside a stream; a refusal of our tokenizer is JSON behind a prefix."""
    if refusal := _refusal(message):
        return refusal
    if QUEUE_FULL.search(message):
        return RateLimited(
            "The queue of this model is full. Send the request again later.", code="queue_full"
        )
    if NOT_LOADED.search(message):
        return ModelUnavailable(UNAVAILABLE, detail=message)
    return EngineFailed(FAILED, detail=message)


def malformed(reason: str) -> EngineFailed:
    """Triton's answer breaks the tensor contract."""
    return EngineFailed(FAILED, detail=f"answer outside the contract: {reason}")


def _refusal(message: str) -> ProxyError | None:
    """`in ensemble 'demo', {"code": …, "param": …, "message": …}`"""
    try:
        fields = json.loads(message[message.index("{") :])
        code, reason = fields["code"], str(fields["message"])[:LONGEST_REFUSAL]
        param = fields["param"]
        if code not in REFUSALS or not isinstance(param, (str, type(None))):
            return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if code == "queue_full":
        return RateLimited(reason, code=code)
    if code == "deadline_exceeded":
        return DeadlineExceeded(TOO_LONG)
    if code == "guide_pending":
        return GuidePending(f"Too much is asked for at once: {reason}.")
    return InvalidRequest(reason, code=code, param=param and param[:ECHO_AT_MOST])
