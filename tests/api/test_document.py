"""The OpenAPI document that the server shows of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from proxy.api.openai.bodies import RequestBody
from tests.doubles.engine import ScriptedEngine

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}


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


def test_no_two_bodies_have_the_same_name():
    names = [kind.__name__ for kind in subclasses(RequestBody)]
    assert len(names) == len(set(names))


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))
