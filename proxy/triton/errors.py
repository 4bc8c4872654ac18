"""gRPC and Triton failures -> the proxy's errors, in one place."""

from __future__ import annotations

import json

import grpc

from proxy.domain.errors import (
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    ModelUnavailable,
    ProxyError,
)

UNREACHABLE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.CANCELLED,
)


def as_proxy_error(error: grpc.aio.AioRpcError) -> ProxyError:
    """A refusal of the tokenizer arrives as INVALID_ARGUMENT with JSON behind a prefix."""
    code, details = error.code(), error.details() or ""
    if code == grpc.StatusCode.INVALID_ARGUMENT and (refusal := _refusal(details)):
        return refusal
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded("The request took longer than allowed and was stopped.")
    if code in UNREACHABLE:
        return ModelUnavailable(f"The model server is not available at present: {details}")
    return EngineFailed(f"The model server failed ({code.name}): {details}")


def _refusal(details: str) -> InvalidRequest | None:
    """`in ensemble 'demo', {"code": …, "param": …, "message": …}`"""
    try:
        fields = json.loads(details[details.index("{") :])
        return InvalidRequest(fields["message"], code=fields["code"], param=fields["param"])
    except (ValueError, KeyError, TypeError):
        return None
