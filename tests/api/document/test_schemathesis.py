"""Requests made from OpenAI's own specification: each answer is one that it documents."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from schemathesis import GenerationMode

from tests.api.answers.test_parameters import logged
from tests.doubles.engine import ScriptedEngine
from tests.fixtures import openai_api
from tests.fixtures.own_document import every_case

RESPONSES = {
    "/chat/completions": ("CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"),
    "/completions": ("CreateCompletionResponse", "CreateCompletionResponse"),
}
EXAMPLES = 60


def operation(path: str) -> Any:
    return schemathesis.openapi.from_dict(openai_api.document())[path]["POST"]


def validator(name: str, *, of_chunks: bool = False) -> Any:
    """of_chunks: a finish reason may be null, as it is in OpenAI's own streams of completions."""
    components = copy.deepcopy(openai_api.document()["components"])
    if of_chunks:
        choice = components["schemas"][name]["properties"]["choices"]["items"]
        finish = choice["properties"]["finish_reason"]
        choice["properties"]["finish_reason"] = {"anyOf": [finish, {"type": "null"}]}
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": components}
    )


class Judge:
    """Says whether an answer is one that the specification has."""

    def __init__(self, path: str) -> None:
        self._documented = openai_api.document()["paths"][path]["post"]["responses"]
        whole, chunk = RESPONSES[path]
        self._whole, self._chunk = validator(whole), validator(chunk, of_chunks=True)
        bad = self._documented["400"]["content"]["application/json"]["schema"]
        self._error = jsonschema_rs.Draft202012Validator(bad)
        self.statuses: set[int] = set()

    def judge(self, response) -> None:
        self.statuses.add(response.status_code)
        assert str(response.status_code) in self._documented, response.text
        if response.status_code != 200:
            self._error.validate(response.json())
        elif response.headers["content-type"].startswith("text/event-stream"):
            *events, done, rest = response.text.split("\n\n")
            assert (done, rest) == ("data: [DONE]", "")
            for event in events:
                self._chunk.validate(json.loads(event.removeprefix("data: ")))
        else:
            self._whole.validate(response.json())


@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("path", RESPONSES)
def test_every_answer_is_documented(serve, path, mode):
    client, judge = serve(ScriptedEngine(logged("ab"))), Judge(path)

    def holds(case) -> None:
        has_body = isinstance(case.body, (dict, list, str, int, float, bool, type(None)))
        content = json.dumps(case.body).encode() if has_body else b""
        judge.judge(client.post(f"/v1{path}", content=content))

    every_case(operation(path).as_strategy(generation_mode=mode), EXAMPLES, holds)
    assert judge.statuses >= ({400} if mode is GenerationMode.NEGATIVE else {200})
