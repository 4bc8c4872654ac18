"""Parses the arguments that a model wrote for a tool, and checks them against its schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs

from proxy.domain.server_tools import ServerTool

ECHOED_AT_MOST = 300


class InvalidArguments(ValueError):
    """The message tells the model what is wrong, and where."""


def check_schema(tool: str, schema: dict[str, Any]) -> None:
    """Raises ValueError: `schema` is not a JSON Schema, or refers to another document."""
    try:
        jsonschema_rs.validator_for(schema, retriever=_refuse_reference)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        reason = error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error)
        raise ValueError(f"the parameters of {tool!r} are not a JSON Schema: {reason}") from error


def parse_arguments(tool: ServerTool, text: str) -> dict[str, Any]:
    """The arguments in the JSON text.

    Raises:
        InvalidArguments: the text is not a JSON object, or breaks the tool's schema.
    """
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArguments("The arguments are not valid JSON.") from None
    if not isinstance(arguments, dict):
        raise InvalidArguments("The arguments are not a JSON object.")
    validator = jsonschema_rs.validator_for(dict(tool.parameters), retriever=_refuse_reference)
    for error in validator.iter_errors(arguments):
        where = "".join(f"[{part!r}]" for part in error.instance_path)
        raise InvalidArguments(
            f"The arguments{where} are wrong: {error.message[:ECHOED_AT_MOST]}. Correct them and "
            "call the tool again."
        )
    return arguments


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"{uri} is another document; only references within the schema are followed")
