"""Requests for an answer of a given form, and engines that give one or not."""

from __future__ import annotations

from proxy.domain.output import FinishReason
from tests.doubles.engine import ScriptedEngine, deltas

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASKED = {"model": "demo", "messages": [{"role": "user", "content": "x"}]}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def answering(first: str, *more: str, finish: FinishReason = FinishReason.STOP) -> ScriptedEngine:
    """Each answer to one request, the last one to all further ones."""
    return ScriptedEngine(deltas(first, finish), then=[deltas(text, finish) for text in more])


def named(schema: dict, *, strict: bool) -> dict:
    body = {"name": "x", "schema": schema, "strict": strict}
    return {"response_format": {"type": "json_schema", "json_schema": body}}


def tag(**fields) -> dict:
    return {"response_format": {"type": "structural_tag", **fields}}
