"""The error tree. api/errors.py turns each leaf into its status and body.

ProxyError
├── RequestError             the caller's mistake, 4xx
│   ├── InvalidRequest       400, with a code and the field
│   ├── InvalidSchema        422: what should be a JSON Schema is none, or more than is allowed
│   ├── SchemaViolation      422: the model's answers break the schema, after all attempts
│   ├── UnknownModel         404
│   └── RateLimited          429: too much at once; the same request may pass later
└── ServiceError             ours, 5xx
    ├── ModelUnavailable     503: Triton is down, not ready, or the model is not loaded
    │   ├── GuidePending     503: the request's guide is still being compiled
    │   └── ShuttingDown     503: this server stops, and its time to drain is over
    ├── DeadlineExceeded     504: the request's time is over
    ├── EngineStalled        504: the engine said nothing for too long
    └── EngineFailed         500: the engine gave up on the request
"""

from __future__ import annotations

from typing import Any

ECHO_AT_MOST = 200


class ProxyError(Exception):
    """`message` is for the caller: what was wrong, with which value, and what to do.

    `param` is the path of the field that was wrong, where there is one. `detail` is for the log:
    what another program reported, which may name addresses and files.
    """

    code = "internal_error"
    param: str | None = None

    def __init__(self, message: str, *, detail: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        """To come out of a sandbox as it was raised: subclasses take more than a message."""
        return _restored, (type(self), self.message, self.__dict__)


class RequestError(ProxyError):
    def __init__(self, message: str, *, code: str, param: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class InvalidRequest(RequestError):
    pass


class InvalidSchema(RequestError):
    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message, code="invalid_schema", param=param)


class SchemaViolation(RequestError):
    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message, code="schema_violation", param=param)


class UnknownModel(RequestError):
    def __init__(self, model: str) -> None:
        super().__init__(
            f"The model {echoed(model)} does not exist. GET /v1/models lists those that do.",
            code="model_not_found",
            param="model",
        )


class RateLimited(RequestError):
    """`retry_after_s`: when the same request may pass."""

    def __init__(
        self, message: str, *, retry_after_s: float = 1.0, code: str = "rate_limit_exceeded"
    ) -> None:
        super().__init__(message, code=code, param=None)
        self.retry_after_s = retry_after_s


class ServiceError(ProxyError):
    pass


class ModelUnavailable(ServiceError):
    code = "model_unavailable"


class GuidePending(ModelUnavailable):
    pass


class ShuttingDown(ModelUnavailable):
    pass


class DeadlineExceeded(ServiceError):
    code = "deadline_exceeded"


class EngineStalled(ServiceError):
    code = "engine_stalled"


class EngineFailed(ServiceError):
    pass


def _restored(kind: type[ProxyError], message: str, state: dict[str, Any]) -> ProxyError:
    error = kind.__new__(kind, message)
    error.__dict__.update(state)
    return error


def echoed(value: object) -> str:
    """A caller's value as it may stand in a message: quoted, and cut at 200 characters."""
    return in_short(repr(value))


def in_short(text: str) -> str:
    return text if len(text) <= ECHO_AT_MOST else text[:ECHO_AT_MOST] + "…"
