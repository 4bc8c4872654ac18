"""The cost of validating a body grows with its length, however much of it is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from proxy.api.http import body_reader
from proxy.api.http.body_reader import BodyLimits
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.chat_socket import SocketMessage
from proxy.api.openai.completion_body import CompletionBody
from proxy.domain.errors import InvalidRequest

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
TEXT = {"model": "demo", "prompt": "hi"}
MANY = 5000
KEYS = {f"key{at}": 1 for at in range(MANY)}


def refused(given: object, kind: type[BaseModel]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        body_reader.parse(json.dumps(given).encode(), kind, limits=BodyLimits())
    return caught.value


@pytest.mark.parametrize(
    ("kind", "given", "param"),
    [
        (ChatCompletionBody, {**CHAT, "stop": [""] * MANY}, "stop[0]"),
        (ChatCompletionBody, {**CHAT, "messages": [1] * 2_000}, "messages[0]"),
        (ChatCompletionBody, {**CHAT, "logit_bias": KEYS}, "logit_bias.key0"),
        (ChatCompletionBody, {**CHAT, "metadata": KEYS}, "metadata.key0"),
        (CompletionBody, {**TEXT, "prompt": [-1] * MANY}, "prompt[0]"),
        (CompletionBody, {**TEXT, "prompt": [[-1]] * MANY}, "prompt[0][0]"),
        (ChatCompletionBody, {**CHAT, **KEYS}, None),
        (SocketMessage, {**CHAT, **KEYS}, None),
        (ChatCompletionBody, {**CHAT, "nvext": KEYS}, "nvext"),
        (
            ChatCompletionBody,
            {**CHAT, "messages": [{"role": "user", "content": [KEYS]}]},
            "messages[0].content[0]",
        ),
    ],
)
def test_many_mistakes_are_not_all_counted(kind, given, param):
    error = refused(given, kind)
    assert error.__cause__.error_count() <= 100
    assert error.param == param


def test_an_object_of_too_many_fields_is_told_how_many_it_has():
    error = refused({**CHAT, "nvext": KEYS}, ChatCompletionBody)
    assert error.code == "unsupported_parameter"
    assert f"'nvext': it has {MANY} fields" in error.message


def collections(schema: Any) -> Iterator[dict[str, Any]]:
    """The lists and dicts in a pydantic core schema whose items may be wrong, all at once."""
    if isinstance(schema, list | tuple):
        for one in schema:
            yield from collections(one)
    elif isinstance(schema, dict):
        if schema.get("type") == "function-wrap" and schema["schema"]["type"] == "dict":
            schema = {**schema["schema"], "type": "in slices"}
        items = [schema.get(name) for name in ("items_schema", "values_schema")]
        if schema.get("type") in ("list", "dict") and any(
            one and one["type"] != "any" for one in items
        ):
            yield schema
        for one in schema.values():
            yield from collections(one)
