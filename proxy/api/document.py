"""The OpenAPI document. Routes read bodies with a `BodyReader` and return responses, so FastAPI
sees neither itself.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import orjson
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

REF = "#/components/schemas/{model}"
DEFINITIONS = "$defs"


class ErrorDetail(BaseModel):
    model_config = ConfigDict(extra="forbid")

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """What `errors.body_of` makes."""

    model_config = ConfigDict(extra="forbid")

    error: ErrorDetail


_ERROR = {"application/json": {"schema": {"$ref": REF.format(model=ErrorBody.__name__)}}}
# Of all routes, whatever they answer else.
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "The request cannot be served as it is", "content": _ERROR},
    "5XX": {"description": "The server or the model behind it failed", "content": _ERROR},
}
EVENTS = {"text/event-stream": {"schema": {"type": "string"}}}


def documented(kind: type[BaseModel], *, streams: bool = False) -> dict[str, Any]:
    """What a route that takes this body adds to the document. streams: if the body says so."""
    schema = deepcopy(_schema(kind))  # Documented takes its definitions out
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    events = {"responses": {"200": {"content": EVENTS}}} if streams else {}
    return {"requestBody": body, **events}


@cache
def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Some of them take 30 ms, which is most of what making an application takes."""
    return kind.model_json_schema(ref_template=REF)


class Documented(FastAPI):
    """The schemas that bodies refer to stand where references from the document's root lead."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()  # the same one each time
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas[ErrorBody.__name__] = ErrorBody.model_json_schema(ref_template=REF)
        schemas.update(schemas[ErrorBody.__name__].pop(DEFINITIONS))
        for path in document["paths"].values():
            for operation in path.values():
                content = operation.get("requestBody", {}).get("content", {})
                for one in content.values():
                    schemas.update(one["schema"].pop(DEFINITIONS, {}))
        return document

    def as_json(self) -> bytes:
        return orjson.dumps(self.openapi())
