"""Requests of both endpoints, their streams, errors and forms of answers."""

from __future__ import annotations

import json

import pytest

from proxy.domain.output import FinishReason
from tests.doubles.engine import ScriptedEngine, deltas

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASKED = {"model": "demo", "messages": [{"role": "user", "content": "x"}]}
CHAT_BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
TEXT_BODY = {"model": "demo", "prompt": "hi"}
BOTH = pytest.mark.parametrize(("path", "body"), [(CHAT, CHAT_BODY), (TEXT, TEXT_BODY)])
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def events(response) -> list[dict]:
    """The payloads of a stream that ends with [DONE]."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    *lines, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def error_of(response) -> dict:
    """An error's body, held to OpenAI's form."""
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert response.json().keys() == {"error"}
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    return error


def answering(first: str, *more: str, finish: FinishReason = FinishReason.STOP) -> ScriptedEngine:
    """Each answer to one request, the last one to all further ones."""
    return ScriptedEngine(deltas(first, finish), then=[deltas(text, finish) for text in more])


def named(schema: dict, *, strict: bool, name: str = "x") -> dict:
    body = {"name": name, "schema": schema, "strict": strict}
    return {"response_format": {"type": "json_schema", "json_schema": body}}


def tag(**fields) -> dict:
    return {"response_format": {"type": "structural_tag", **fields}}
