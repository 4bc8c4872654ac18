"""Reads the query parameters of a GET route, which are checked as bodies are."""

from __future__ import annotations

from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from triton_openai.proxy.api.bodies.validation_errors import refusal
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Q = TypeVar("Q", bound=Query)


def read(request: Request, kind: type[Q]) -> Q:
    """Raises InvalidRequest: a parameter is unknown, given twice, or has a wrong value."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise InvalidRequest(
                f"The query parameter {name[:100]!r} is given twice.",
                code=ErrorCode.INVALID_PARAMETER,
                param=name[:100],
            )
        given[name] = value
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise refusal(error) from error
