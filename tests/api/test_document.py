"""The OpenAPI document that the server shows of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from proxy.api.openai.bodies import RequestBody
from tests.doubles.engine import ScriptedEngine, deltas

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
GOOD = [CHAT, {**CHAT, "stream": True}, {"messages": CHAT["messages"]}]
GOOD += [{"model": "demo", "prompt": "hi", "stream": streams} for streams in (False, True)]
GOOD += [{"prompt": "hi"}, {"tokens": [104, 105]}]
BAD = [b"", b"{", b"[]", b"{}", b'{"model": "nope", "messages": [{"role": "user", "content": ""}]}']


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def test_every_reference_leads_somewhere(serve):
    document = serve(ScriptedEngine()).get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    found = set(references(document))
    assert len(found) > 20
    assert found <= {f"#/components/schemas/{name}" for name in schemas}


def test_a_bodys_schema_holds_with_the_documents_own(serve):
    client = serve(ScriptedEngine())
    document = [client.get("/openapi.json").json() for _ in range(2)][-1]
    asked = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    schema = asked["content"]["application/json"]["schema"]
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})
    assert validator.is_valid(CHAT)
    assert not validator.is_valid({**CHAT, "messages": [{"role": "user", "content": [{}]}]})


def test_every_answer_has_a_documented_status_and_form(serve):
    client = serve(ScriptedEngine(deltas("ab")))
    document = client.get("/openapi.json").json()
    bodies = [*BAD, *(json.dumps(good).encode() for good in GOOD)]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = [
                client.request(method, path.replace("{model}", model), content=content)
                for content in (bodies if "requestBody" in operation else [b""])
                for model in (["demo", "nope"] if "{model}" in path else [""])
            ]
            assert 200 in {answer.status_code for answer in answers}, path
            for answer in answers:
                assert_documented(answer, operation["responses"], document)


def assert_documented(answer: Any, documented: dict, document: dict) -> None:
    status = str(answer.status_code)
    told = documented.get(status, documented.get(f"{status[0]}XX"))
    assert told is not None, answer.text
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in told["content"]
    if answer.status_code != 200:
        schema = {**told["content"][kind]["schema"], "components": document["components"]}
        jsonschema_rs.validate(schema, answer.json())
        assert not jsonschema_rs.is_valid(schema, {"detail": "no"})


def test_no_two_bodies_have_the_same_name():
    names = [kind.__name__ for kind in subclasses(RequestBody)]
    assert len(names) == len(set(names))


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))
