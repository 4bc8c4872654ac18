"""The OpenAPI document that the server shows of itself: complete, and true of real answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from proxy.api.anthropic.message_body import CountTokensBody, MessagesBody
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.field_types import RequestBody
from proxy.api.openai.generation_body import NvExt
from proxy.domain.errors import ErrorCode
from tests.api.answers.test_parameters import logged
from tests.docs import parameter_table
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.fixtures.own_document import OwnDocument

TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}{# <tool_call> <think> #}"
)
CATALOG = FixedCatalog(facts=replace(FACTS, context_length=4096, chat_template=TEMPLATE))
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"model": "demo", "prompt": "hi"}
GOOD = [CHAT, {**CHAT, "stream": True}, {"messages": CHAT["messages"]}]
GOOD += [{**PROMPT, "stream": streams} for streams in (False, True)]
GOOD += [{**CHAT, "max_tokens": 5, "stream": streams} for streams in (False, True)]
GOOD += [{"model": "demo", "input": "hi"}, {"model": "demo", "input": "hi", "stream": True}]
GOOD += [{"prompt": "hi"}, {"tokens": [104, 105]}, {"model": "demo", "input": ["hi", "you"]}]
GOOD += [{"model": "demo", "query": "hi", "documents": ["you"]}]
ASK = {"type": "predicate", "instructions": "It rains."}
GOOD += [{"model": "demo", "input": "hi", "questions": [ASK]}]
GOOD += [{"model": "demo", "text_1": "hi", "text_2": ["you"]}]
BAD = [b"", b"{", b"[]", b"{}", b'{"model": "nope", "messages": [{"role": "user", "content": ""}]}']
METHODS = ("get", "post", "put", "delete")
EXTRA = {"extra_fields": ["timing", "worker_id"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<think>hm</think>ab<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'


def open_document(serve: Any, engine: ScriptedEngine) -> tuple[Any, OwnDocument]:
    client = serve(engine, CATALOG)
    return client, OwnDocument.of(client, __name__)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def operations(own: OwnDocument) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in own.document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def places(path: str, response: str) -> set[str]:
    """The path with a parameter that exists, and with one that does not."""
    names = {"{model}": "demo", "{request}": "known", "{response_id}": response}
    known = nope = path
    for name, value in names.items():
        known, nope = known.replace(name, value), nope.replace(name, "nope")
    return {known, nope}


def kept_response(client: Any) -> str:
    body = {"model": "demo", "input": "hi", "background": True}
    return client.post("/v1/responses", json=body).json()["id"]


def test_every_reference_leads_somewhere(serve):
    _, own = open_document(serve, ScriptedEngine())
    found = set(references(own.document))
    assert len(found) > 60
    for reference in found:
        value = own.document
        for part in reference.removeprefix("#/").split("/"):
            value = value[part]


def test_every_operation_has_an_id_of_its_own(serve):
    _, own = open_document(serve, ScriptedEngine())
    ids = [operation["operationId"] for _, _, operation in operations(own)]
    assert len(ids) == len(set(ids)) > 15


def test_every_answer_has_a_documented_status_and_form(serve):
    client, own = open_document(partial(serve, admin="on"), ScriptedEngine(deltas("ab")))
    client.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "known"})
    bodies = [*BAD, *(json.dumps(good).encode() for good in GOOD)]
    for path, method, operation in operations(own):
        response = kept_response(client)
        answers = [
            client.request(method, place, content=content)
            for content in (bodies if "requestBody" in operation else [b""])
            for place in places(path, response)
        ]
        assert 200 in {answer.status_code for answer in answers}, path
        wrong = next(one for one in METHODS if one not in own.document["paths"][path])
        for answer in [*answers, client.request(wrong, path)]:
            own.judge(operation, answer)


@pytest.mark.parametrize(
    ("path", "fields", "given"),
    [
        ("/v1/chat/completions", {"logprobs": True, "top_logprobs": 2, "n": 2}, "ab"),
        ("/v1/chat/completions", {"tools": [TOOL], "service_tier": "auto"}, CALL),
        ("/v1/chat/completions", {"return_token_ids": True, "nvext": EXTRA}, "ab"),
        ("/v1/chat/completions", {"include_timings": True, "n": 2}, "ab"),
        ("/v1/completions", {"logprobs": 2, "n": 2, "echo": True}, "ab"),
        ("/v1/completions", {"return_token_ids": True, "nvext": EXTRA, "user": "u"}, "ab"),
        ("/v1/completions", {"include_timings": True, "echo": True}, "ab"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_answers_with_all_that_can_be_asked_for_fit_their_schema(
    serve, path, fields, given, streams
):
    ids_and_logs = "logprobs" in fields or "return_token_ids" in fields
    client, own = open_document(
        serve, ScriptedEngine(logged("ab") if ids_and_logs else deltas(given))
    )
    more = {"stream": True, "stream_options": {"include_usage": True}} if streams else {}
    body = {**(PROMPT if path == "/v1/completions" else CHAT), **fields, **more}
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    own.judge(own.document["paths"][path]["post"], answer)


def test_an_error_within_a_stream_fits_its_schema(serve):
    client, own = open_document(serve, ScriptedEngine(deltas("ab", None), error=ValueError("x")))
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", PROMPT)):
        answer = client.post(path, json={**body, "stream": True})
        assert '"error"' in answer.text
        own.judge(own.document["paths"][path]["post"], answer)


def test_the_examples_of_requests_are_served(serve):
    client, own = open_document(serve, ScriptedEngine(deltas('{"city":"Rome"}')))
    seen = 0
    for path, method, operation in operations(own):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        assert bool(content.get("examples")) is ("requestBody" in operation), path
        for name, example in content.get("examples", {}).items():
            own.schema(content["schema"]).validate(example["value"])
            given = dict(example["value"])
            given |= {"model": "demo"} if "model" in given else {}
            answer = client.request(method, path, json=given)
            assert answer.status_code == 200, (path, name, answer.text)
            own.judge(operation, answer)
            seen += 1
    assert seen > 15


def test_every_route_has_a_schema_and_an_example_of_its_answer_and_they_agree(serve):
    _, own = open_document(serve, ScriptedEngine())
    for path, _, operation in operations(own):
        assert operation["description"], path
        for kind, content in operation["responses"]["200"]["content"].items():
            assert {"schema", "x-line-schema"} & content.keys(), path
            example = content["example"]
            text = example if isinstance(example, str) else json.dumps(example)
            own.judge_content(kind, content, text)


def test_every_field_of_a_body_is_described(serve):
    _, own = open_document(serve, ScriptedEngine())
    schemas = own.document["components"]["schemas"]
    for kind in (
        ChatCompletionBody,
        CompletionBody,
        NvExt,
        MessagesBody,
        CountTokensBody,
    ):
        properties = schemas[kind.__name__]["properties"]
        assert properties.keys() == kind.model_fields.keys()
        assert [name for name, field in properties.items() if not field.get("description")] == []
    for name in ("PlainChatBody", "TokenizeBody", "DetokenizeBody"):
        fields = schemas[name]["properties"].items()
        assert [field for field, schema in fields if not schema.get("description")] == []


def test_the_shipped_words_are_those_of_the_tables():
    hint = "run: python -m tests.docs.parameter_table"
    assert parameter_table.SHIPPED.read_text() == parameter_table.table(), hint


def test_every_error_status_is_documented(serve):
    _, own = open_document(serve, ScriptedEngine())
    chat = own.document["paths"]["/v1/chat/completions"]["post"]["responses"]
    of_administration = {"409"}  # see tests/api/administration
    assert {str(code.status) for code in ErrorCode} - of_administration <= chat.keys()
    for status, headers in (("429", "retry-after"), ("503", "retry-after-ms"), ("405", "allow")):
        assert {headers, "x-request-id"} <= chat[status]["headers"].keys()


def test_the_limits_and_the_models_sizes_are_told(serve):
    client = serve(ScriptedEngine(), CATALOG)
    own = OwnDocument.of(client, __name__)
    chat, ids = own.component("ChatCompletionBody"), own.component("DetokenizeBody")
    for body, is_valid in (
        ({"stop": ["a"] * 16}, True),
        ({"stop": ["a"] * 17}, False),
        ({"priority": -(2**31)}, False),
        ({"nvext": {"agent_hints": {"priority": 2**31}}}, False),
        ({"stop_token_ids": [1] * 17}, False),
        ({"bad_words": ["a"] * 1025}, False),
        ({"allowed_token_ids": [1] * 16_385}, False),
        ({"logit_bias": {f"{i}": 1 for i in range(1025)}}, False),
        ({"logit_bias": {"7": 1}}, True),
        ({"logit_bias": {"x": 1}}, False),
        ({"truncate_prompt_tokens": 0}, False),
        ({"service_tier": "flex"}, False),
        ({"metadata": dict.fromkeys(map(str, range(17)), "x")}, False),
    ):
        assert chat.is_valid({**CHAT, **body}) is is_valid, body
        status = client.post("/v1/chat/completions", json={**CHAT, **body}).status_code
        assert (status == 400) is not is_valid, body
    words = own.document["components"]["schemas"]["PlainChatBody"]["properties"]["messages"]
    assert "at most 2048" in words["description"]
    for tokens, is_valid in (([255], True), ([256], False), ([1] * 4097, False)):
        assert ids.is_valid({"tokens": tokens}) is is_valid
        status = client.post("/detokenize", json={"tokens": tokens}).status_code
        assert (status == 200) is is_valid


def test_a_prompt_or_messages_are_tokenized_as_the_schema_says(serve):
    client, own = open_document(serve, ScriptedEngine())
    body, hi = own.component("TokenizeBody"), CHAT["messages"]
    for given, is_valid in (
        ({"prompt": "a"}, True),
        ({"messages": hi, "prompt": None}, True),
        ({"messages": hi, "prompt": "a"}, False),
        ({"prompt": None}, False),
        ({}, False),
    ):
        assert body.is_valid(given) is is_valid, given
        assert (client.post("/tokenize", json=given).status_code == 200) is is_valid, given


def test_no_two_bodies_have_the_same_name():
    names = [kind.__name__ for kind in subclasses(RequestBody)]
    assert len(names) == len(set(names))


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))
