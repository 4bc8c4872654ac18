"""The OpenAPI document. Bodies are parsed by `body.read`, so FastAPI does not see them itself."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

REF = "#/components/schemas/{model}"
DEFINITIONS = "$defs"


def documented(kind: type[BaseModel]) -> dict[str, Any]:
    """What a route that takes this body adds to the document."""
    schema = kind.model_json_schema(ref_template=REF)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class Documented(FastAPI):
    """The schemas that bodies refer to stand where references from the document's root lead."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()  # the same one each time
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for path in document["paths"].values():
            for operation in path.values():
                content = operation.get("requestBody", {}).get("content", {})
                for one in content.values():
                    schemas.update(one["schema"].pop(DEFINITIONS, {}))
        return document
