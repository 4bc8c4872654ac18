"""Why a request with a key gets no answer -> the error that its caller sees."""

from __future__ import annotations

from proxy.api.idempotency.key_headers import KEY, LAST_EVENT_ID
from proxy.domain.errors import (
    Conflict,
    ErrorCode,
    IdempotencyUnavailable,
    InvalidRequest,
    ModelUnavailable,
    ProxyError,
    RateLimited,
    RequestError,
)
from proxy.state.answer import Reason


def error_of(reason: Reason) -> ProxyError:
    match reason:
        case Reason.OTHER_BODY:
            return _conflict(
                f"This {KEY} was used for a request with another body: use a new key for each "
                "request, and the same key only to send the same request again."
            )
        case Reason.TOO_LARGE:
            return _conflict(
                f"The request with this {KEY} is still running, and its answer is too large to be "
                "sent from its beginning again. Wait until it has ended, or use another key."
            )
        case Reason.NOT_KEPT:
            return RequestError(
                f"The stream that {LAST_EVENT_ID} continues is not kept (any more). Send the "
                f"request without {LAST_EVENT_ID}.",
                code=ErrorCode.STREAM_NOT_KEPT,
                param=LAST_EVENT_ID,
            )
        case Reason.UNKNOWN_EVENT:
            return _wrong_id(f"{LAST_EVENT_ID} names an event that this stream has not sent yet.")
        case Reason.NOT_EVENTS:
            return _wrong_id(f"{LAST_EVENT_ID} continues streams of events: this answer is none.")
        case Reason.TOO_MANY_READERS:
            return RateLimited(
                f"Too many requests with this {KEY} read the answer at once.",
                code=ErrorCode.CONCURRENCY_LIMIT_EXCEEDED,
            )
        case Reason.PRIVATE:
            return _conflict(
                f"Another server has the request with this {KEY}, and its answer is private: it "
                "stays there. Use another key."
            )


def lost() -> ProxyError:
    return ModelUnavailable("The proxy that generated this answer has ended. Try again.")


def returns_secrets() -> ProxyError:
    return InvalidRequest(
        f"Routes of API keys take no {KEY}: their answers are secrets, which are not kept for a "
        "second request. Send the request without it.",
        code=ErrorCode.UNSUPPORTED_PARAMETER,
        param=KEY,
    )


def unavailable(detail: str) -> ProxyError:
    return IdempotencyUnavailable(
        f"The records of {KEY} cannot be used at present. Try again later, or send the request "
        "without a key.",
        detail=detail,
    )


def _conflict(message: str) -> ProxyError:
    return Conflict(message, code=ErrorCode.IDEMPOTENCY_CONFLICT, param=KEY)


def _wrong_id(message: str) -> ProxyError:
    return InvalidRequest(message, code=ErrorCode.INVALID_PARAMETER, param=LAST_EVENT_ID)
