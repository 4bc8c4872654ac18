"""How long a caller lets its request wait for a row: the header `x-queue-timeout-ms`."""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.errors import ErrorCode, InvalidRequest, echoed
from proxy.domain.record import running_record
from proxy.domain.request import GenerationRequest

HEADER = "x-queue-timeout-ms"
MOST_MS = 3_600_000
_NAME = HEADER.encode()
# For the OpenAPI document: the `openapi_extra` of routes that generate.
TAKES_HEADER = {
    "parameters": [
        {
            "name": HEADER,
            "in": "header",
            "required": False,
            "description": "How long the request waits for a row of its model, in milliseconds; 0: "
            "not at all. Without it: as long as the server lets it.",
            "schema": {"type": "integer", "minimum": 0, "maximum": MOST_MS},
        }
    ]
}


def with_patience(request: GenerationRequest) -> GenerationRequest:
    """The request with what its HTTP request asks for; of a WebSocket, the one that opened it.

    Raises:
        InvalidRequest: the header is no whole number from 0 to MOST_MS.
    """
    given = [value for name, value in running_record().headers if name == _NAME]
    if not given:
        return request
    value = given[0].strip()
    is_number = value.isdigit() and len(value) <= len(str(MOST_MS)) and int(value) <= MOST_MS
    if len(given) > 1 or not is_number:
        shown = b", ".join(given).decode("latin-1")
        raise InvalidRequest(
            f"'{HEADER}' is {echoed(shown)}: it must be one whole number of milliseconds from 0, "
            f"which means not to wait, to {MOST_MS}.",
            code=ErrorCode.INVALID_PARAMETER,
            param=HEADER,
        )
    return replace(request, queue_patience_s=int(value) / 1000)
