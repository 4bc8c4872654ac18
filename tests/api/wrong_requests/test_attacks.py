"""Bodies that are made to hurt: each is answered at once, with the error body, never with 5xx."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import reduce

import pytest

from proxy.api.anthropic.message_body import CountTokensBody, MessagesBody
from proxy.api.decisions.decision_body import DecisionBody
from proxy.api.http.validation_errors import ADVICE, QUOTED
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.completion_body import CompletionBody
from proxy.api.openai.embedding_body import EmbeddingsBody
from proxy.api.openai.score_body import RerankBody, ScoreBody
from proxy.api.responses.response_body import ResponseBody
from tests.api.formats import error_of
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = '"model": "demo", "messages": [{"role": "user", "content": "hi"}]'
GOOD = json.loads(f"{{{HI}}}")
DEEP = {
    "arrays": "[" * 100_000 + "]" * 100_000,
    "objects": '{"a":' * 5000 + "1" + "}" * 5000,
    "unclosed": "[" * 1_000_000,
    "in metadata": f'{{{HI}, "metadata": {{"a": {"[" * 120 + "]" * 120}}}}}',
    "in a template's values": f'{{{HI}, "chat_template_kwargs": {{"a": {"[" * 120 + "]" * 120}}}}}',
}
STRANGE = {
    "a lone surrogate": f'{{{HI}, "user": "\\ud800"}}',
    "a lone surrogate in a key": f'{{{HI}, "\\ud800": 1}}',
    "a lone surrogate in a stop": f'{{{HI}, "stop": "\\ud800"}}',
    "bytes that are no UTF-8": f'{{{HI}, "user": "'.encode() + b'\xff"}',
    "UTF-16": f"{{{HI}}}".encode("utf-16"),
    "nothing": "",
    "a list": f"[{{{HI}}}]",
    "a string": '"hi"',
    "a number": "1",
    "null": "null",
    "NaN": f'{{{HI}, "temperature": NaN}}',
    "Infinity": f'{{{HI}, "frequency_penalty": -Infinity}}',
    "1e999": f'{{{HI}, "temperature": 1e999}}',
    "an int of many digits": f'{{{HI}, "seed": {"9" * 4000}}}',
    "a huge exponent": f'{{{HI}, "max_tokens": 1e400}}',
    "a NUL in the model": '{"model": "\\u0000", "messages": [{"role": "user", "content": "x"}]}',
    "a key of a megabyte": f'{{{HI}, "{"k" * 1_000_000}": 1}}',
    "a value of a megabyte": f'{{{HI}, "temperature": "{"v" * 1_000_000}"}}',
    "10,000 unknown keys": json.dumps({**GOOD, **{f"key{i}": 1 for i in range(10_000)}}),
    "100,000 wrong messages": f'{{"model": "demo", "messages": [{"1," * 99_999}1]}}',
}


@pytest.mark.parametrize("content", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("path", [CHAT, TEXT, "/chat/json", "/tokenize"])
def test_deep_nesting_is_refused_before_it_is_parsed(idle, path, content):
    response = idle.post(path, content=content)
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_json"


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE)
def test_a_strange_body_is_a_short_400_at_once(idle, content):
    began = time.process_time()
    response = idle.post(CHAT, content=content)
    assert time.process_time() - began < 5
    error = error_of(response)
    assert response.status_code in (400, 404)
    assert error["type"] == "invalid_request_error"
    assert len(response.content) < 6000


def test_a_key_that_comes_twice_is_taken_once_as_json_parsers_do(serve):
    engine = ScriptedEngine(deltas("a"))
    content = f'{{{HI}, "temperature": 0.1, "temperature": 0.2}}'
    assert serve(engine).post(CHAT, content=content).status_code == 200
    assert engine.requests[0].sampling.temperature == 0.2


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "image/png"])
def test_the_body_is_json_whatever_its_content_type_says(serve, kind):
    client = serve(ScriptedEngine(deltas("a")))
    headers = {"content-type": kind}
    assert client.post(CHAT, content=f"{{{HI}}}", headers=headers).status_code == 200
    refused = client.post(CHAT, content="model=demo", headers=headers)
    assert error_of(refused)["code"] == "invalid_json"


@pytest.mark.parametrize(
    "kind", ["input_audio", "file", "video_url", "audio_url", "refusal", "image_embeds"]
)
def test_parts_that_are_no_text_are_refused_with_their_place(idle, kind):
    parts = [{"type": "text", "text": "x"}, {"type": kind, kind: {"url": "x"}}]
    messages = [*GOOD["messages"] * 2, {"role": "user", "content": parts}]
    error = error_of(idle.post(CHAT, json={**GOOD, "messages": messages}))
    assert (error["code"], error["param"]) == ("unsupported_parameter", "messages[2].content[1]")
    assert kind in error["message"]


@pytest.mark.parametrize(
    ("field", "item", "count", "most"),
    [
        ("stop", "é" * 256, 8, 4096),
        ("allowed_token_ids", 5, 16_384, 16_384),
        ("messages", GOOD["messages"][0], 2048, 2048),
    ],
)
def test_how_much_a_request_may_hold_is_bounded(serve, field, item, count, most):
    client = serve(ScriptedEngine(deltas("a")))
    assert client.post(CHAT, json={**GOOD, field: [item] * count}).status_code == 200
    response = client.post(CHAT, json={**GOOD, field: [item] * (count + 1)})
    assert (response.status_code, error_of(response)["param"]) == (400, field)
    assert str(most) in error_of(response)["message"]


@pytest.mark.parametrize(("letters", "count", "most"), [(50, 129, 128), (60_000, 3, 256_000)])
def test_tools_and_their_bytes_are_bounded(serve, letters, count, most):
    tools = [
        {"type": "function", "function": {"name": f"f{at}", "description": "é" * letters}}
        for at in range(count)
    ]
    unknown = FixedCatalog(facts=replace(FACTS, chat_template="{{ tools }}"))
    client = serve(ScriptedEngine(), unknown)
    error = error_of(client.post(CHAT, json={**GOOD, "tools": tools}))
    assert (error["code"], error["param"]) == ("invalid_parameter", "tools")
    assert str(most) in error["message"]
    fewer = error_of(client.post(CHAT, json={**GOOD, "tools": tools[:1]}))
    assert fewer["code"] == "unsupported_parameter", "this model has no tool parser"


NEEDS_TEMPLATE = {
    CHAT: (ChatCompletionBody, GOOD),
    "/v1/responses": (ResponseBody, {"model": "demo", "input": "hi"}),
    "/v1/messages": (MessagesBody, {**GOOD, "max_tokens": 5}),
    "/v1/messages/count_tokens": (CountTokensBody, GOOD),
    "/v1/decisions": (
        DecisionBody,
        {
            "model": "demo",
            "input": "hi",
            "questions": [{"type": "predicate", "instructions": "Is it polite?"}],
        },
    ),
}
BODIES = NEEDS_TEMPLATE | {
    TEXT: (CompletionBody, {"model": "demo", "prompt": "x"}),
    "/v1/embeddings": (EmbeddingsBody, {"model": "demo", "input": "x"}),
    "/v1/rerank": (RerankBody, {"model": "demo", "query": "x", "documents": ["y"]}),
    "/v1/score": (ScoreBody, {"model": "demo", "text_1": "x", "text_2": "y"}),
}


@pytest.mark.parametrize("path", BODIES)
def test_fields_of_other_servers_are_refused_with_fields_of_the_same_route(idle, path):
    kind, body = BODIES[path]
    fields = kind.model_fields.keys()
    for name in ADVICE.keys() - fields:
        *above, last = name.split(".")
        if above and path not in (CHAT, TEXT):
            continue
        given = reduce(lambda inner, part: {part: inner}, reversed(above), {last: 1})
        message = idle.post(path, json=body | given).json()["error"]["message"]
        _, refused, advice = message.partition(f"'{name}' is not supported by this server")
        assert refused, message
        assert {*QUOTED.findall(advice)} <= fields, message
        if {*QUOTED.findall(ADVICE[name])} <= fields:
            assert advice == f": {ADVICE[name]}"


@pytest.mark.parametrize("path", NEEDS_TEMPLATE)
def test_without_a_chat_template_no_route_advises_what_only_another_can_do(serve, path):
    client = serve(ScriptedEngine(), FixedCatalog(facts=replace(FACTS, chat_template=None)))
    response = client.post(path, json=NEEDS_TEMPLATE[path][1])
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert message == "This model has no chat template: it only completes prompts."
