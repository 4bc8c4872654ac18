"""The error for a request that the model cannot serve."""

from __future__ import annotations

import json

INVALID_PARAMETER = "invalid_parameter"
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"


class Refusal(Exception):
    """`param` is the request's field by its name in the ensemble."""

    def __init__(self, code: str, param: str, message: str) -> None:
        super().__init__(message)
        self.code, self.param, self.message = code, param, message

    def as_json(self, request_id: str) -> str:
        """The error message that the proxy turns into an API error."""
        return json.dumps(
            {
                "code": self.code,
                "param": self.param,
                "message": self.message,
                "request_id": request_id,
            }
        )
