"""Maps failures of gRPC and Triton to the proxy's errors. Called by `client` and `tokenizer`."""

from __future__ import annotations

import json
import re

import grpc

from proxy.domain.errors import (
    ECHO_AT_MOST,
    DeadlineExceeded,
    EngineFailed,
    ErrorCode,
    ForeignAnswer,
    GuidePending,
    InvalidRequest,
    ModelUnavailable,
    ProxyError,
    RateLimited,
)

UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
# Triton no longer waits for the answer of a tokenizer or detokenizer, which the next request will
# receive (see the detokenizer); it says the same of one that has died. Engines are decoupled.
STUB_LATE = re.compile(r"Stub process '[^']*tokenizer[^']*' is not healthy")
NOT_LOADED = re.compile(
    r"unknown model|is not ready|is not healthy|no available versions|[Ss]erver is s(topp|hutt)ing"
)
# our runtime ends, and with it every stream: another engine can continue them
ENGINE_DIED = re.compile(
    r"TensorRT-LLM's executor has ended:|vLLM's engine process has ended:"
    r"|(TensorRT-LLM|vLLM) hangs:"
    r"|EngineCore encountered an issue|EngineDeadError"  # vLLM's own words, in the first stream
)
# from Triton's queue policy, and from TensorRT-LLM's executor behind the C++ backend
QUEUE_FULL = re.compile(r"maximum queue size", re.IGNORECASE)
LONGEST_REFUSAL = 2_000  # characters
UNAVAILABLE = "The model is not available at present."
FAILED = "The model server failed."
TOO_LONG = "The request took longer than allowed and was stopped."


def error_of_status(code: grpc.StatusCode, details: str) -> ProxyError:
    """For a status of the call itself: Triton is unreachable, or the deadline has passed."""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(TOO_LONG)
    detail = f"{code.name}: {details}"
    if code in UNREACHABLE:
        return ModelUnavailable(UNAVAILABLE, detail=detail)
    return EngineFailed(FAILED, detail=detail)


def error_of_call(error: grpc.aio.AioRpcError, request_id: str | None = None) -> ProxyError:
    """For a failed unary call: its own status, or Triton's message about the request."""
    code, details = error.code(), error.details() or ""
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, *UNREACHABLE):
        return error_of_status(code, details)
    return error_of_message(details or code.name, request_id)


def error_of_message(message: str, request_id: str | None = None) -> ProxyError:
    """The error for a message in a stream: the tokenizer's refusal, which is JSON after a prefix, a
    full queue, a model that is not loaded, an engine that died; otherwise EngineFailed.

    request_id: the request's, if it is known. A refusal of another one is a ForeignAnswer.
    """
    if refusal := _refusal(message, request_id):
        return refusal
    if QUEUE_FULL.search(message):
        return RateLimited(
            "The queue of this model is full. Send the request again later.",
            code=ErrorCode.QUEUE_FULL,
        )
    if NOT_LOADED.search(message) or ENGINE_DIED.search(message):
        return ModelUnavailable(UNAVAILABLE, detail=message)
    return EngineFailed(FAILED, detail=message)


def malformed(reason: str) -> EngineFailed:
    """For a response that violates the tensor contract."""
    return EngineFailed(FAILED, detail=f"the response violates the tensor contract: {reason}")


def foreign_answer(reason: str) -> ForeignAnswer:
    """For an answer that Triton handed to the wrong request."""
    return ForeignAnswer(UNAVAILABLE, detail=reason)


def _refusal(message: str, request_id: str | None) -> ProxyError | None:
    """What our own tokenizer or engine refuses a request with; None for any other message.

    `in ensemble 'demo', {"code": …, "param": …, "message": …, "request_id": …}`
    """
    try:
        fields = json.loads(message[message.index("{") :])
        code, reason = fields["code"], str(fields["message"])[:LONGEST_REFUSAL]
        param, refused = fields["param"], fields.get("request_id", request_id)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(param, (str, type(None))):
        return None
    if request_id is not None and refused != request_id:
        return foreign_answer(f"the tokenizer refused request {str(refused)[:ECHO_AT_MOST]!r}")
    match code:
        case "foreign_answer":
            return foreign_answer(reason)
        case "guide_pending":
            return GuidePending(f"Too much is asked for at once: {reason}.")
        case ErrorCode.QUEUE_FULL:
            return RateLimited(reason, code=ErrorCode.QUEUE_FULL)
        case ErrorCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(TOO_LONG)
        case (
            ErrorCode.INVALID_PARAMETER
            | ErrorCode.CONTEXT_LENGTH_EXCEEDED
            | ErrorCode.GUIDE_TOO_SLOW
        ):
            field = param and param[:ECHO_AT_MOST]
            return InvalidRequest(reason, code=ErrorCode[code.upper()], param=field)
    return None
