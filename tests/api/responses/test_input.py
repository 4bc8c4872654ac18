"""Input of /v1/responses: items -> the prompt, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.api.responses.formats import RESPONSES, body, whole
from tests.doubles.engine import CAPABILITIES, FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.fixtures.pictures import PNG, data_url

TEMPLATE = (
    "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}"
    "{% for m in messages %}[{{ m.role }}{{ ' ' ~ m.tool_call_id if m.tool_call_id }}]"
    "{{ '(' ~ m.reasoning_content ~ ')' if m.reasoning_content }}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}"
    "{{ c.function.name }} {{ c.id }}:{{ c.function.arguments | tojson }}{% endfor %}"
    "{% endfor %}{# <tool_call> <think> #}"
)
CATALOG = FixedCatalog(facts=replace(FACTS, context_length=4096, chat_template=TEMPLATE))
TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}


def prompt(serve, *items: Any, **fields: object) -> str:
    engine = ScriptedEngine(deltas("ok"))
    whole(serve(engine, CATALOG), input=list(items), **fields)
    return engine.requests[0].text


def refused(serve, **fields: object) -> dict[str, Any]:
    engine = ScriptedEngine(deltas("ok"))
    response = serve(engine, CATALOG).post(RESPONSES, json=body(**fields))
    assert (400 <= response.status_code < 500, engine.requests) == (True, []), response.text
    return response.json()["error"]


def test_a_text_is_a_message_of_the_user(serve):
    engine = ScriptedEngine(deltas("ok"))
    whole(serve(engine, CATALOG), input="hi", instructions="be brief")
    assert engine.requests[0].text == "[system]be brief[user]hi"


def test_instructions_before_the_first_turn_are_one_system_prompt(serve):
    items = [
        {"role": "system", "content": "a"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "b"}]},
        USER,
        {"role": "assistant", "content": "hello"},
        {"role": "developer", "content": "c"},
        USER,
    ]
    found = prompt(serve, *items, instructions="first")
    assert found.startswith("[system]first\n\na\n\nb[user]hi[assistant]hello[")
    assert found.endswith("]c[user]hi")


def test_reasoning_text_and_calls_of_one_turn_are_one_message(serve):
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    said = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
    }
    found = prompt(serve, USER, thought, said, CALL, OUTPUT, tools=TOOLS)
    assert found == ('<f>[user]hi[assistant](hm)Let me see.f c1:{"x": 1}[tool c1]sunny')


def test_parallel_calls_and_their_outputs_pair_by_id_in_any_order(serve):
    calls = [{**CALL, "call_id": one} for one in ("a", "b")]
    outputs = [{**OUTPUT, "call_id": one, "output": one} for one in ("b", "a")]
    found = prompt(serve, USER, *calls, *outputs, USER, tools=TOOLS)
    assert found.endswith('[assistant]f a:{"x": 1}f b:{"x": 1}[tool b]b[tool a]a[user]hi')


def test_a_model_gets_back_the_reasoning_of_which_a_client_keeps_only_what_is_sealed(serve):
    engine = ScriptedEngine(deltas("<think>hm</think>Now."))
    client = serve(engine, CATALOG)
    thought, message = whole(client, include=["reasoning.encrypted_content"])["output"]
    del thought["content"]
    whole(client, input=[USER, thought, message, USER])
    assert "(hm)Now." in engine.requests[1].text
    foreign = {**thought, "encrypted_content": "gAAAAAB"}
    whole(client, input=[USER, foreign, message, USER])
    assert "hm" not in engine.requests[2].text


def test_a_compacted_conversation_stands_for_the_one_before(serve):
    engine = ScriptedEngine(deltas("We spoke of Rome."))
    client = serve(engine, CATALOG)
    response = client.post(f"{RESPONSES}/compact", json={"model": "demo", "input": [USER]})
    found = response.json()
    assert (found["object"], found["usage"]["input_tokens"]) == ("response.compaction", 7)
    assert "Summarize this conversation" in engine.requests[0].text
    whole(client, input=[*found["output"], USER])
    assert engine.requests[1].text == "[user]<summary>\nWe spoke of Rome.\n</summary>[user]hi"


def test_the_tokens_of_an_input_can_be_counted(serve):
    client = serve(ScriptedEngine(), CATALOG)
    found = client.post(f"{RESPONSES}/input_tokens", json=body(instructions="x")).json()
    assert found == {"object": "response.input_tokens", "input_tokens": len("[system]x[user]hi")}


def test_old_turns_are_left_out_where_the_caller_lets_them(serve):
    turns = [{"role": "user", "content": f"{number} " + "x" * 500} for number in range(20)]
    start = {"role": "developer", "content": "rules"}
    found = prompt(serve, start, *turns, truncation="auto")
    assert found.startswith("[system]rules[user]")
    assert "[user]19 " in found
    assert "[user]0 " not in found
    assert 4096 - 600 < len(found) < 4096
    last = [{"role": "user", "content": "x" * 5000}]
    counted = serve(ScriptedEngine(), CATALOG).post(
        f"{RESPONSES}/input_tokens", json=body(input=[start, *turns, *last], truncation="auto")
    )
    assert counted.json()["error"]["code"] == "context_length_exceeded"


def test_images_of_users_and_of_outputs_reach_the_model(serve):
    template = (
        "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}"
        "{% elif m.content %}{% for p in m.content %}{{ p.text or '<image>' }}{% endfor %}"
        "{% endif %}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}"
        "{{ m.tool_call_id }}{% endfor %}{% for t in tools or [] %}{{ t }}{% endfor %}"
        "{# <tool_call> #}"
    )
    catalog = FixedCatalog(
        facts=replace(FACTS, context_length=4096, chat_template=template),
        capabilities=CAPABILITIES | {"images"},
    )
    engine = ScriptedEngine(deltas("ok"))
    image = {"type": "input_image", "image_url": data_url("png", PNG)}
    text = {"type": "input_text", "text": "look"}
    user = {"role": "user", "content": [text, image]}
    output = {**OUTPUT, "output": [{"type": "input_text", "text": "a plot"}, image]}
    response = serve(engine, catalog).post(
        RESPONSES, json=body(input=[user, CALL, output], tools=TOOLS)
    )
    assert response.status_code == 200, response.text
    assert len(engine.requests[0].images) == 2


@pytest.mark.parametrize(
    ("fields", "param", "part"),
    [
        ({"input": []}, "input", "at least 1"),
        ({"input": None}, "input", "required"),
        ({"tools": [{"type": "web_search"}]}, "tools", "web_search"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools", "mcp"),
        ({"tools": TOOLS * 2}, "tools[1].name", "earlier tool"),
        ({"tool_choice": "required"}, "tool_choice", "only allowed when"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "name": "g"}},
            "tool_choice.name",
            "not one of",
        ),
        ({"tools": TOOLS, "tool_choice": {"type": "file_search"}}, "tool_choice", "file_search"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "custom", "name": "f"}},
            "tool_choice.name",
            "a tool of the type 'function'",
        ),
        (
            {
                "tools": TOOLS,
                "tool_choice": {
                    "type": "allowed_tools",
                    "tools": [{"type": "function", "name": "g"}],
                },
            },
            "tool_choice.tools[0].name",
            "not one of",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0]",
            "'input_file'",
        ),
        (
            {
                "input": [
                    {
                        "role": "assistant",
                        "content": [{"type": "input_image", "image_url": "https://x.org/a.png"}],
                    }
                ]
            },
            "input[0]",
            "role 'user'",
        ),
        ({"input": [USER, CALL]}, "input", "No tool output found for function call c1"),
        ({"input": [USER, OUTPUT]}, "input", "No tool call found"),
        ({"input": [USER, CALL, CALL, OUTPUT]}, "input", "two calls"),
        (
            {"input": [{"type": "compaction", "encrypted_content": "gAAA"}]},
            "input[0]",
            "/v1/responses/compact",
        ),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input", "not found"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "not found"),
        ({"background": True, "store": False}, "background", "needs 'store'"),
        ({"n": 2}, "n", "not a parameter"),
        ({"max_tokens": 2}, "max_tokens", "not a parameter"),
        ({"prompt": {"id": "p"}}, "prompt", "prompt"),
        ({"conversation": "conv_1"}, "conversation", "conversation"),
        ({"include": ["x"]}, "include[0]", "include"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
            "only False",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": 1}}}},
            "text.format.schema",
            "",
        ),
        (
            {"text": {"format": {"type": "json_object"}}, "guided_regex": "a"},
            "guided_regex",
            "both set",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(serve, fields, param, part):
    error = refused(serve, **fields)
    assert (error["param"], part.lower() in error["message"].lower()) == (param, True), error


def test_a_million_small_items_and_a_deep_one_are_refused(serve):
    many = json.dumps(body(input=[USER])).replace("[{", "[" + "{}," * 100_000 + "{", 1)
    for text in (many, json.dumps(body(input="x")).replace('"x"', "[" * 5000 + "]" * 5000)):
        response = serve(ScriptedEngine(), CATALOG).post(
            RESPONSES, content=text, headers={"content-type": "application/json"}
        )
        assert response.status_code == 400, response.text
