"""The error tree, and the codes that callers see. api/errors.py makes each into a response.
An error has a class of its own where some code catches it, or where its class gives defaults; all
others are a RequestError or a ServiceError with their code. A `LaunchError` ends a command instead:
proxy/cli.py prints it.

ProxyError
├── RequestError             the caller's mistake, 4xx
│   ├── InvalidRequest       400, with the field
│   ├── AuthenticationFailed 401: no credential, or one that is not accepted
│   ├── UnknownModel         404
│   ├── Conflict             409: the change does not fit what is stored
│   └── RateLimited          429: too much at once; the same request may pass later
└── ServiceError             ours, 5xx
    ├── ModelUnavailable     503: Triton is down, not ready, or the model is not loaded
    │   ├── GuidePending     503: the request's guide is still being compiled
    │   ├── EndpointDrains   503: its endpoint drains, and the stream continues elsewhere
    │   ├── ForeignAnswer    503: Triton handed us the answer to another request, and is restarted
    │   ├── Preempted        503: a higher class needs its row, and the stream continues later
    │   └── ShuttingDown     503: this server stops, and its time to drain is over
    ├── LimitsUnavailable    503: the ledger of the callers' limits cannot be reached
    ├── DeadlineExceeded     504: the request took longer than its time limit
    ├── EngineStalled        504: the engine sent nothing for too long
    ├── StoreUnavailable     503: the database cannot be used
    └── EngineFailed         500: the engine gave up on the request
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from proxy.domain.key_records import KeysUnavailable

ECHO_AT_MOST = 200
SERVER_LIMIT = "server.concurrent_requests"  # the one limit that is no caller's
STORE_AWAY = "The database of keys and usage does not answer now. Try again later."


class ErrorType(str, Enum):
    """The `type` of an error's body, by whose fault it is."""

    INVALID_REQUEST = "invalid_request_error"
    AUTHENTICATION = "authentication_error"
    PERMISSION = "permission_error"
    RATE_LIMIT = "rate_limit_error"
    SERVER = "server_error"


class ErrorCode(str, Enum):
    """The `code` of an error's body. Each has the HTTP status and the `type` of its response."""

    status: int
    type: ErrorType

    def __new__(cls, code: str, status: int, type: ErrorType = ErrorType.INVALID_REQUEST) -> Any:
        member = str.__new__(cls, code)
        member._value_ = code
        member.status, member.type = status, type
        return member

    # what the HTTP server refuses, without the application
    BODY_IN_SMALL_PIECES = "body_in_small_pieces", 400
    INVALID_HOST = "invalid_host", 400
    INVALID_HTTP = "invalid_http", 400
    REQUEST_TIMEOUT = "request_timeout", 408
    URI_TOO_LONG = "uri_too_long", 414
    TOO_MANY_PIPELINED = "too_many_pipelined", 429
    HEADER_FIELDS_TOO_LARGE = "header_fields_too_large", 431
    # the caller's mistakes
    DUPLICATE_REQUEST_ID = "duplicate_request_id", 400
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded", 400
    INVALID_JSON = "invalid_json", 400
    INVALID_MESSAGES = "invalid_messages", 400
    INVALID_PARAMETER = "invalid_parameter", 400
    MISSING_PARAMETER = "missing_parameter", 400
    UNSUPPORTED_PARAMETER = "unsupported_parameter", 400
    MISSING_API_KEY = "missing_api_key", 401, ErrorType.AUTHENTICATION
    INVALID_API_KEY = "invalid_api_key", 401, ErrorType.AUTHENTICATION
    EXPIRED_API_KEY = "expired_api_key", 401, ErrorType.AUTHENTICATION
    CONFLICTING_CREDENTIALS = "conflicting_credentials", 401, ErrorType.AUTHENTICATION
    INSUFFICIENT_SCOPE = "insufficient_scope", 403, ErrorType.PERMISSION
    MODEL_NOT_ALLOWED = "model_not_allowed", 403, ErrorType.PERMISSION
    TENANT_NOT_ACTIVE = "tenant_not_active", 403, ErrorType.PERMISSION
    MODEL_NOT_FOUND = "model_not_found", 404
    TENANT_NOT_FOUND = "tenant_not_found", 404
    KEY_NOT_FOUND = "key_not_found", 404
    ENDPOINT_NOT_FOUND = "endpoint_not_found", 404
    DEPLOYMENT_NOT_FOUND = "deployment_not_found", 404
    REQUEST_NOT_FOUND = "request_not_found", 404
    RESPONSE_NOT_FOUND = "response_not_found", 404
    FILE_NOT_FOUND = "file_not_found", 404
    BATCH_NOT_FOUND = "batch_not_found", 404
    UNKNOWN_URL = "unknown_url", 404
    METHOD_NOT_ALLOWED = "method_not_allowed", 405
    TENANT_EXISTS = "tenant_exists", 409
    TENANT_HAS_KEYS = "tenant_has_keys", 409
    KEY_REVOKED = "key_revoked", 409
    NO_EARLIER_WEIGHTS = "no_earlier_weights", 409
    ENDPOINTS_REFUSED = "endpoints_refused", 409
    TOO_MANY_DECISIONS = "too_many_decisions", 409
    IDEMPOTENCY_CONFLICT = "idempotency_conflict", 409
    STREAM_NOT_KEPT = "stream_not_kept", 410
    REQUEST_TOO_LARGE = "request_too_large", 413
    UNSUPPORTED_CONTENT_TYPE = "unsupported_content_type", 415
    UNSUPPORTED_ENCODING = "unsupported_encoding", 415
    UNKNOWN_HOST = "unknown_host", 421
    GUIDE_TOO_SLOW = "guide_too_slow", 422
    INVALID_SCHEMA = "invalid_schema", 422
    SCHEMA_VIOLATION = "schema_violation", 422
    # limits, and our own failures
    QUEUE_FULL = "queue_full", 429, ErrorType.RATE_LIMIT
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded", 429, ErrorType.RATE_LIMIT
    CONCURRENCY_LIMIT_EXCEEDED = "concurrency_limit_exceeded", 429, ErrorType.RATE_LIMIT
    REQUEST_EXCEEDS_LIMIT = "request_exceeds_limit", 429, ErrorType.RATE_LIMIT
    INSUFFICIENT_QUOTA = "insufficient_quota", 429, ErrorType.RATE_LIMIT
    INTERNAL_ERROR = "internal_error", 500, ErrorType.SERVER
    AUTHENTICATION_UNAVAILABLE = "authentication_unavailable", 503, ErrorType.SERVER
    IDEMPOTENCY_UNAVAILABLE = "idempotency_unavailable", 503, ErrorType.SERVER
    LIMITS_UNAVAILABLE = "limits_unavailable", 503, ErrorType.SERVER
    MODEL_UNAVAILABLE = "model_unavailable", 503, ErrorType.SERVER
    STORE_UNAVAILABLE = "store_unavailable", 503, ErrorType.SERVER
    DEADLINE_EXCEEDED = "deadline_exceeded", 504, ErrorType.SERVER
    ENGINE_STALLED = "engine_stalled", 504, ErrorType.SERVER


class ProxyError(Exception):
    """`message` is for the caller: what was wrong, with which value, and what to do.

    `param` is the path of the field that was wrong, where there is one. `detail` is for the log:
    what another program reported, which may name addresses and files.
    """

    code = ErrorCode.INTERNAL_ERROR
    param: str | None = None

    def __init__(self, message: str, *, detail: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the error, for a sandbox: subclasses take more arguments than a message."""
        return _restored, (type(self), self.message, self.__dict__)


class RequestError(ProxyError):
    def __init__(self, message: str, *, code: ErrorCode, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class InvalidRequest(RequestError):
    def __init__(
        self, message: str, *, code: ErrorCode = ErrorCode.INVALID_PARAMETER, param: str | None
    ) -> None:
        super().__init__(message, code=code, param=param)


class AuthenticationFailed(RequestError):
    def __init__(self, message: str, *, code: ErrorCode = ErrorCode.INVALID_API_KEY) -> None:
        super().__init__(message, code=code)


class UnknownModel(RequestError):
    """near: a model that the caller may use, and that the name resembles."""

    def __init__(self, model: str, near: str | None = None) -> None:
        hint = "" if near is None else f"Did you mean {near!r}? "
        super().__init__(
            f"The model {echoed(model)} does not exist. {hint}GET /v1/models lists those that do.",
            code=ErrorCode.MODEL_NOT_FOUND,
            param="model",
        )


class Conflict(RequestError):
    pass


class RateLimited(RequestError):
    """`retry_after_s`: after how many seconds the same request may succeed; infinite if it never
    will. `limit`: which of the caller's limits refuses it, such as `key.requests_per_minute`, or
    SERVER_LIMIT.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float = 1.0,
        code: ErrorCode = ErrorCode.RATE_LIMIT_EXCEEDED,
        limit: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s
        self.limit = limit


class ServiceError(ProxyError):
    """code: another than that of the class."""

    def __init__(
        self, message: str, *, code: ErrorCode | None = None, detail: str | None = None
    ) -> None:
        super().__init__(message, detail=detail)
        if code is not None:
            self.code = code


class ModelUnavailable(ServiceError):
    """endpoint: the one that was lost, where one was. For the log and for the next choice."""

    code = ErrorCode.MODEL_UNAVAILABLE
    endpoint: str | None = None


class GuidePending(ModelUnavailable):
    pass


class EndpointDrains(ModelUnavailable):
    pass


class ForeignAnswer(ModelUnavailable):
    pass


class Preempted(ModelUnavailable):
    pass


class ShuttingDown(ModelUnavailable):
    pass


class LimitsUnavailable(ServiceError):
    code = ErrorCode.LIMITS_UNAVAILABLE


class DeadlineExceeded(ServiceError):
    code = ErrorCode.DEADLINE_EXCEEDED


class EngineStalled(ServiceError):
    code = ErrorCode.ENGINE_STALLED


class EngineFailed(ServiceError):
    pass


class StoreUnavailable(ServiceError, KeysUnavailable):
    code = ErrorCode.STORE_UNAVAILABLE

    def __init__(self, message: str = STORE_AWAY, *, detail: str) -> None:
        super().__init__(message, detail=detail)


class LaunchError(Exception):
    """A fault that the operator can fix. The message says what is wrong and how to fix it."""


class ModelLoadingFailed(LaunchError):
    """A model's folder cannot be served. Printed as JSON, in the format of the API's errors."""

    def __init__(self, folder: object, reason: str) -> None:
        super().__init__(f"Failed to load model from {folder}: {' '.join(reason.split())}")


def unsupported(message: str, param: str | None) -> InvalidRequest:
    """The model or this server cannot do what the field asks for."""
    return InvalidRequest(message, code=ErrorCode.UNSUPPORTED_PARAMETER, param=param)


def model_not_allowed(model: str) -> RequestError:
    return RequestError(
        f"This API key does not allow the model {echoed(model)}. GET /v1/models lists those that "
        "it allows.",
        code=ErrorCode.MODEL_NOT_ALLOWED,
        param="model",
    )


def _restored(kind: type[ProxyError], message: str, state: dict[str, Any]) -> ProxyError:
    error = kind.__new__(kind, message)
    error.__dict__.update(state)
    return error


def echoed(value: object) -> str:
    """A caller's value as it may appear in a message: quoted, and cut at 200 characters."""
    return in_short(repr(value))


def in_short(text: str) -> str:
    return text if len(text) <= ECHO_AT_MOST else text[:ECHO_AT_MOST] + "…"


def counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
