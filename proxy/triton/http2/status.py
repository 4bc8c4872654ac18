"""How a gRPC call ended: from trailers, from an HTTP status, from a reset.

Source: gRPC's PROTOCOL-HTTP2.md and http-grpc-status-mapping.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from grpc import StatusCode

from proxy.triton.http2.frames import NAMES, ErrorCode, code_name

_BY_NUMBER: dict[str, StatusCode] = {str(code.value[0]): code for code in StatusCode}
_BY_HTTP_STATUS = {
    "400": StatusCode.INTERNAL,
    "401": StatusCode.UNAUTHENTICATED,
    "403": StatusCode.PERMISSION_DENIED,
    "404": StatusCode.UNIMPLEMENTED,
    "429": StatusCode.UNAVAILABLE,
    "502": StatusCode.UNAVAILABLE,
    "503": StatusCode.UNAVAILABLE,
    "504": StatusCode.UNAVAILABLE,
}
_BY_RESET: dict[int, StatusCode] = {
    ErrorCode.STREAM_CLOSED: StatusCode.UNKNOWN,
    ErrorCode.REFUSED_STREAM: StatusCode.UNAVAILABLE,
    ErrorCode.CANCEL: StatusCode.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: StatusCode.PERMISSION_DENIED,
}


@dataclass(frozen=True, slots=True)
class Status:
    """details: the peer's text, or a description of what happened."""

    code: StatusCode
    details: str = ""

    @property
    def is_ok(self) -> bool:
        return self.code is StatusCode.OK


def of_trailers(trailers: Mapping[str, str]) -> Status:
    """UNKNOWN for trailers without a status, or with an undefined one."""
    number = trailers.get("grpc-status")
    if number is None:
        return Status(StatusCode.UNKNOWN, "the peer ended the stream without a grpc-status")
    code = _BY_NUMBER.get(number)
    if code is None:
        return Status(StatusCode.UNKNOWN, f"the peer ended the stream with grpc-status {number!r}")
    # invalid percent encoding stays as it is
    message = unquote_to_bytes(trailers.get("grpc-message", "").encode("latin-1"))
    return Status(code, message.decode("utf-8", "replace"))


def of_response(head: Mapping[str, str]) -> Status | None:
    """None if this is the head of a gRPC response."""
    http, kind = head.get(":status", ""), head.get("content-type", "")
    if http != "200":
        code = _BY_HTTP_STATUS.get(http, StatusCode.UNKNOWN)
        return Status(code, f"the peer responded with HTTP status {http}")
    if not kind.startswith("application/grpc"):
        return Status(
            StatusCode.UNKNOWN, f"the peer responded with content-type {kind!r}, not gRPC"
        )
    return None


def of_trailers_only(fields: Mapping[str, str]) -> Status:
    """A response that is a single header block. Without a gRPC status the HTTP status counts."""
    if "grpc-status" in fields:
        return of_trailers(fields)
    return of_response(fields) or of_trailers(fields)


def of_reset(code: int) -> Status:
    status = _BY_RESET.get(code, StatusCode.INTERNAL) if code in NAMES else StatusCode.UNKNOWN
    return Status(status, f"the peer reset the stream: {code_name(code)}")
