"""What clients ask for without looking does not end their conversation: a `max_tokens` over the
room, an effort that no template reads, tools that come and go, blocks of another server's tools.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.api.tools.test_offers import OWN, body
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.fixtures.pictures import PNG

CLAMPED = "x-max-tokens-clamped"
TEMPLATE = (
    "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.arguments | tojson }}{% endfor %}"
    "{{ m.tool_call_id or '' }}{% endfor %}{# <tool_call> #}"
)
CATALOG = FixedCatalog(facts=replace(FACTS, context_length=4096, chat_template=TEMPLATE))
LIMITS = {"/v1/chat/completions": "max_tokens", "/v1/messages": "max_tokens"}
MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", OWN)
def test_a_max_tokens_over_the_room_is_lowered_and_the_header_says_to_what(serve, path, stream):
    engine = ScriptedEngine(deltas("ok"))
    name = LIMITS.get(path, "max_output_tokens")
    fields = {"max_output_tokens_exceeded": "clamp"} if path == CHAT else {}
    client = serve(engine, CATALOG, **fields)
    with capture_logs() as lines:
        response = client.post(path, json=body(path, **{name: 32_000}, stream=stream))
    assert response.status_code == 200, response.text
    assert response.headers[CLAMPED] == str(4096 - 7)  # the engine counts a prompt of 7 tokens
    (line,) = (one for one in lines if one["event"] == "request")
    assert line["clamped_max_tokens"] == 4096 - 7
    (asked,) = engine.requests
    assert (asked.max_tokens, asked.token_cap) == (32_000, 32_000)
    fits = client.post(path, json=body(path, **{name: 4000}, stream=stream))
    assert CLAMPED not in fits.headers


@pytest.mark.parametrize("path", OWN)
def test_the_operator_may_refuse_it_everywhere(serve, path):
    engine = ScriptedEngine(deltas("ok"))
    client = serve(engine, CATALOG, max_output_tokens_exceeded="refuse")
    name = LIMITS.get(path, "max_output_tokens")
    client.post(path, json=body(path, **{name: 32_000}))
    assert engine.requests[0].token_cap is None  # so that the tokenizer refuses it


def test_chats_are_refused_unless_the_operator_says_otherwise(serve):
    engine = ScriptedEngine(deltas("ok"))
    serve(engine, CATALOG).post(CHAT, json=body(CHAT, max_tokens=32_000))
    assert engine.requests[0].token_cap is None


@pytest.mark.parametrize(
    ("path", "fields", "names"),
    [
        (CHAT, {"reasoning_effort": "high", "verbosity": "low"}, ["reasoning_effort", "verbosity"]),
        (
            RESPONSES,
            {"reasoning": {"effort": "high", "context": "all_turns"}, "text": {"verbosity": "low"}},
            ["reasoning_effort", "verbosity"],
        ),
        (MESSAGES, {"output_config": {"effort": "high"}}, ["reasoning_effort"]),
    ],
)
def test_a_wish_that_no_template_reads_is_a_hint_and_the_log_says_so(serve, path, fields, names):
    with capture_logs() as lines:
        response = serve(ScriptedEngine(deltas("ok")), CATALOG).post(
            path, json=body(path, **fields)
        )
    assert response.status_code == 200, response.text
    (line,) = (one for one in lines if one["event"] == "request")
    assert line["without_effect"] == names
    reads = replace(FACTS, chat_template=f"{TEMPLATE}{{{{ reasoning_effort }}}}{{{{ verbosity }}}}")
    engine = ScriptedEngine(deltas("ok"))
    serve(engine, FixedCatalog(facts=reads)).post(path, json=body(path, **fields))
    assert "high" in engine.requests[0].text


def message_prompt(serve, messages: list[dict[str, Any]], **fields: Any) -> str:
    engine = ScriptedEngine(deltas("ok"))
    sent = {"model": "demo", "max_tokens": 9, "messages": messages, **fields}
    response = serve(engine, CATALOG).post(MESSAGES, json=sent)
    assert response.status_code == 200, response.text
    return engine.requests[0].text


def change(kind: str, **tool: Any) -> dict[str, Any]:
    return {"role": "system", "content": [{"type": f"tool_{kind}", "tool": tool}]}


USER = {"role": "user", "content": "hi"}
F, G = OWN[MESSAGES], {"name": "g", "input_schema": {"type": "object"}}
REFERENCE = {"type": "tool_reference", "name": "f"}


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ([], "<f>"),
        ([change("removal", **REFERENCE)], ""),
        ([change("removal", **REFERENCE), change("addition", **REFERENCE)], "<f>"),
        ([change("addition", type="tool_definition", definition=G)], "<f><g>"),
        ([change("addition", type="mcp_toolset_reference", server_name="x")], "<f>"),
    ],
)
def test_tools_come_and_go_in_the_middle_of_a_chat(serve, changes, seen):
    placeholder = {**G, "name": "DeferredToolPlaceholder", "defer_loading": True}
    prompt = message_prompt(serve, [USER, *changes], tools=[F, placeholder])
    assert prompt.partition("[")[0] == seen


def test_a_note_that_holds_for_one_turn_is_gone_in_the_next(serve):
    note = {"role": "system", "content": "only now", "clear_at": "next_user_message"}
    said = {"role": "assistant", "content": "ok"}
    assert "only now" in message_prompt(serve, [USER, note])
    assert "only now" not in message_prompt(serve, [USER, note, said, USER])


@pytest.mark.parametrize(
    ("block", "word"),
    [
        (
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "rain"}},
            "rain",
        ),
        (
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": "T1"}]},
            "T1",
        ),
        ({"type": "mcp_tool_use", "id": "m", "name": "f", "server_name": "x", "input": {}}, "x"),
        (
            {"type": "code_execution_tool_result", "content": {"stdout": "42", "data": "A" * 9999}},
            "42",
        ),
        ({"type": "container_upload", "file_id": "file_1"}, "file_1"),
        ({"type": "of_tomorrow"}, ""),
    ],
)
def test_blocks_of_another_servers_tools_become_text(serve, block, word):
    answer = {"role": "assistant", "content": [block, {"type": "text", "text": "So."}]}
    prompt = message_prompt(serve, [USER, answer, USER])
    assert "So." in prompt
    assert word in prompt
    assert len(prompt) < 1_000


def test_a_result_may_have_what_no_model_reads(serve):
    picture = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    calling = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
    }
    document = {
        "type": "document",
        "source": {"type": "base64", "data": "A" * 9_999},
        "title": "T2",
    }
    result = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [{"type": "image", "source": picture}, document],
    }
    messages = [USER, calling, {"role": "user", "content": [result]}]
    blind = FixedCatalog(facts=CATALOG.facts, capabilities=CATALOG.capabilities - {"images"})
    engine = ScriptedEngine(deltas("ok"))
    sent = {"model": "demo", "max_tokens": 9, "messages": messages, "tools": [F]}
    assert serve(engine, blind).post(MESSAGES, json=sent).status_code == 200
    assert "reads no images" in engine.requests[0].text
    assert "T2" in engine.requests[0].text
    own = {"role": "user", "content": [{"type": "image", "source": picture}]}
    sent["messages"] = [*messages, {"role": "assistant", "content": "ok"}, own]
    error = serve(engine, blind).post(MESSAGES, json=sent)
    assert error.status_code == 400
    client = serve(engine, blind, unreadable_result_images="refuse")
    assert client.post(MESSAGES, json={**sent, "messages": messages}).status_code == 400


def test_a_prompt_over_the_context_is_refused_in_anthropics_words(serve):
    long = [{"role": "user", "content": "hello " * 2_000}]
    sent = {"model": "demo", "messages": long}
    error = serve(ScriptedEngine(), CATALOG).post(f"{MESSAGES}/count_tokens", json=sent).json()
    assert error["error"]["message"].startswith("prompt is too long")


def test_a_tools_result_may_have_no_content(serve):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for content in ({"content": None}, {}, {"content": ""}):
        messages = [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", **content},
        ]
        sent = {"model": "demo", "messages": messages, "tools": [OWN[CHAT]]}
        response = serve(ScriptedEngine(deltas("ok")), CATALOG).post(CHAT, json=sent)
        assert response.status_code == 200, json.dumps(response.json())
