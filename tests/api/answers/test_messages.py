"""Anthropic's Messages API over HTTP: prompts, answers, streams, errors, Claude Code's requests."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from proxy.api.protocols import words_at
from proxy.domain.errors import EngineFailed
from proxy.domain.identity import Limits
from proxy.domain.output import FinishReason
from proxy.operate.replay.comparison import facts_of
from tests.api.tools.test_tools import CALL, CATALOG, SCHEMA
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.application import application
from tests.fixtures.examples import examples
from tests.fixtures.limits import AsCaller, caller
from tests.fixtures.pictures import PNG

MESSAGES, COUNT, CHAT = "/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"name": "f", "input_schema": SCHEMA}, {"name": "g", "input_schema": {"type": "object"}}]
THINKS = FixedCatalog(
    facts=replace(
        FACTS,
        context_length=4096,
        chat_template=FACTS.chat_template + "{{ enable_thinking }}{# <think> #}",
    )
)


NOTE = {"type": "text", "media_type": "text/plain", "data": "The sky."}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
CITED = {"enabled": True}


def document(source: dict[str, Any], **fields: object) -> dict[str, Any]:
    return {"type": "document", "source": source, **fields}


def body(**fields: object) -> dict[str, Any]:
    return {"model": "demo", "max_tokens": 20, "messages": HI, **fields}


def whole(client, **fields: object) -> dict[str, Any]:
    response = client.post(MESSAGES, json=body(**fields))
    assert response.status_code == 200, response.text
    return response.json()


def events(client, **fields: object) -> list[dict[str, Any]]:
    response = client.post(MESSAGES, json=body(stream=True, **fields))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = []
    for block in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def folded(streamed: list[dict[str, Any]]) -> dict[str, Any]:
    """What the events add up to, and the check that they come in Anthropic's order."""
    first, *blocks, last, stop = streamed
    assert (first["type"], last["type"], stop) == (
        "message_start",
        "message_delta",
        {"type": "message_stop"},
    )
    message, is_open, text = first["message"], False, ""
    for event in blocks:
        at, kind = event["index"], event["type"]
        if kind == "content_block_start":
            assert (at, is_open) == (len(message["content"]), False)
            message["content"].append(event["content_block"])
            is_open, text = True, ""
        elif kind == "content_block_stop":
            if message["content"][at]["type"] == "tool_use" and text:
                message["content"][at]["input"] = json.loads(text)
            is_open = False
        else:
            assert (at, is_open) == (len(message["content"]) - 1, True)
            added = {key: value for key, value in event["delta"].items() if key != "type"}
            ((name, value),) = added.items()
            if name == "partial_json":
                text += value
            else:
                message["content"][at][name] += value
    assert not is_open
    message["usage"] |= last["usage"]
    return {**message, **last["delta"]}


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    assert message["id"].startswith("msg_")
    content = [{**block, "id": ""} if "id" in block else block for block in message["content"]]
    return {**message, "id": "", "content": content}


def error_of(response, status: int) -> dict[str, str]:
    found = response.json()
    assert (response.status_code, found.keys()) == (status, {"type", "error", "request_id"})
    assert (found["type"], found["error"].keys()) == ("error", {"type", "message"})
    assert found["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    return found["error"]


PIECES = st.sampled_from(["a", " é", "\n", CALL, CALL.replace("f", "g", 1), "STOP", "}"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(
    thought=st.sampled_from(["", "<think>hm\n</think>\n\n", "<think></think>"]),
    pieces=st.lists(PIECES, max_size=5),
    finish=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    display=st.sampled_from(["summarized", "omitted"]),
)
def test_the_stream_folds_to_the_whole_message(serve, thought, pieces, finish, display):
    client = serve(ScriptedEngine(deltas(f"{thought}{''.join(pieces)} ", finish)), CATALOG)
    thinking = {"type": "adaptive", "display": display}
    fields = {"tools": TOOLS, "stop_sequences": ["STOP"], "thinking": thinking}
    assert without_ids(folded(events(client, **fields))) == without_ids(whole(client, **fields))


def test_a_replay_compares_messages_as_it_does_chats(serve):
    client = serve(ScriptedEngine(deltas("<think>hm</think>Now.")), CATALOG)
    stream, complete = (client.post(MESSAGES, json=body(stream=each)) for each in (True, False))
    words = words_at(MESSAGES)
    facts = facts_of(200, stream.text, words)
    assert facts == facts_of(200, complete.text, words)
    assert (facts.finishes, facts.usage[0]) == (("end_turn",), 7)
    assert "Now." in facts.text
    refused = facts_of(404, client.post(MESSAGES, json=body(model="x")).text, words)
    assert refused.finishes == ("error: not_found_error",)


def test_blocks_keep_their_order_and_reasoning_has_a_signature(serve):
    client = serve(ScriptedEngine(deltas(f"<think>hm</think>Now.{CALL}")), CATALOG)
    message = whole(client, tools=TOOLS)
    (call,) = (block for block in message["content"] if block["type"] == "tool_use")
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "unsigned"},
        {"type": "text", "text": "Now."},
        {"type": "tool_use", "id": call["id"], "name": "f", "input": {"x": 1}},
    ]
    assert (message["stop_reason"], message["role"], message["model"]) == (
        "tool_use",
        "assistant",
        "demo",
    )


def test_a_call_that_the_limit_cuts_has_the_input_so_far(serve):
    cut = CALL.removesuffix("}}\n</tool_call>") + ', "y": "un'
    message = whole(serve(ScriptedEngine(deltas(cut, FinishReason.LENGTH)), CATALOG), tools=TOOLS)
    assert message["stop_reason"] == "max_tokens"
    assert message["content"][0]["input"] == {"x": 1}


@pytest.mark.parametrize(
    ("text", "finish", "fields", "reason", "stop"),
    [
        ("ab", FinishReason.STOP, {}, "end_turn", None),
        ("abENDc", FinishReason.STOP, {"stop_sequences": ["END", "x"]}, "stop_sequence", "END"),
        ("ab", FinishReason.LENGTH, {"stop_sequences": ["END"]}, "max_tokens", None),
    ],
)
def test_stop_reasons(serve, text, finish, fields, reason, stop):
    message = whole(serve(ScriptedEngine(deltas(text, finish))), **fields)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, stop)
    assert message["content"] == [{"type": "text", "text": "ab"}]


def test_input_tokens_are_those_that_were_not_cached(serve):
    client = serve(ScriptedEngine(deltas("ab")))
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 3,
        "output_tokens_details": {"thinking_tokens": 0},
        "service_tier": "standard",
    }
    assert whole(client)["usage"] == usage
    start, *_ = events(client)
    assert start["message"]["usage"] == {**usage, "output_tokens": 0}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}


USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": [text_block("21")]}
CALLED = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch={};"
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "other"}
REMINDER = "<system-reminder>\nBe brief.\n</system-reminder>"
SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "assistant", "content": [THOUGHT, text_block("Well."), USE]}
ASKED_CHAT = {
    "role": "assistant",
    "content": "Well.",
    "reasoning": "hm",
    "tool_calls": [CALLED],
}
USER = {"role": "user", "content": "hi"}
DONE = {"role": "tool", "tool_call_id": "c1", "content": "21"}


@pytest.mark.parametrize(
    ("system", "messages", "same"),
    [
        ("You.", [USER], [{"role": "system", "content": "You."}, USER]),
        (
            [text_block(BILLING.format("fa690")), text_block("You "), text_block("are.")],
            [{"role": "user", "content": [text_block("h"), text_block("i")]}],
            [{"role": "system", "content": "You are."}, USER],
        ),
        (f"{BILLING.format('fa691')}\nYou.", [USER], [{"role": "system", "content": "You."}, USER]),
        (
            None,
            [USER, ASKED, {"role": "user", "content": [RESULT, text_block("and?")]}],
            [USER, ASKED_CHAT, DONE, {"role": "user", "content": "and?"}],
        ),
        (
            None,
            [USER, ASKED, {"role": "user", "content": [{**RESULT, "is_error": True}]}],
            [USER, ASKED_CHAT, {**DONE, "content": "Error: 21"}],
        ),
        (None, [USER, USER], [{"role": "user", "content": "hi\n\nhi"}]),
        ("You.", [SYSTEM, USER], [{"role": "system", "content": "You.\n\nBe brief."}, USER]),
        (None, [USER, SYSTEM], [{"role": "user", "content": f"hi\n\n{REMINDER}"}]),
        (
            None,
            [USER, ASKED, SYSTEM, {"role": "user", "content": [RESULT]}],
            [USER, ASKED_CHAT, {**DONE, "content": f"21\n\n{REMINDER}"}],
        ),
        (
            None,
            [USER, {"role": "assistant", "content": "ok"}, SYSTEM],
            [USER, {"role": "assistant", "content": "ok"}, {"role": "user", "content": REMINDER}],
        ),
    ],
)
def test_the_prompt_is_that_of_the_same_chat(serve, system, messages, same):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, CATALOG)
    whole(client, system=system, messages=messages)
    assert client.post(CHAT, json={"model": "demo", "messages": same}).status_code == 200
    ours, chats = (request.text for request in engine.requests)
    assert ours == chats


def test_the_answer_goes_on_where_the_last_message_ends(serve):
    engine = ScriptedEngine(deltas("B)"))
    message = whole(serve(engine), messages=[USER, {"role": "assistant", "content": "It is ("}])
    assert engine.requests[0].text == "<user>hi\n<assistant>It is ("
    assert message["content"] == [{"type": "text", "text": "B)"}]


def test_sampling_reaches_the_engine(serve):
    engine = ScriptedEngine(deltas("a"))
    whole(serve(engine), temperature=0.5, top_p=0.9, top_k=3)
    (seen,) = engine.requests
    assert (seen.sampling.temperature, seen.sampling.top_p, seen.sampling.top_k) == (0.5, 0.9, 3)
    assert seen.max_tokens == 20


@pytest.mark.parametrize(
    ("thinking", "written"),
    [
        (None, ""),
        ({"type": "adaptive"}, "True"),
        ({"type": "enabled", "budget_tokens": 1024}, "True"),
        ({"type": "disabled"}, "False"),
    ],
)
def test_thinking_switches_the_template(serve, thinking, written):
    engine = ScriptedEngine(deltas("a"))
    whole(serve(engine, THINKS), thinking=thinking, output_config={"effort": "high"})
    assert engine.requests[0].text == f"<user>hi\n<assistant>{written}"


def test_the_budget_ends_the_reasoning(serve):
    thought = deltas("<think>abcdefghij", None)
    engine = ScriptedEngine(thought, then=[deltas("Now.")])
    message = whole(
        serve(engine, CATALOG), thinking={"type": "enabled", "budget_tokens": 5}, max_tokens=60
    )
    thinking, answer = message["content"]
    assert (thinking["thinking"], answer["text"]) == ("abcd", "Now.")


def test_a_model_that_always_thinks_ends_it_at_once_where_thinking_is_disabled(serve):
    engine = ScriptedEngine(deltas("<think>abcdefghij", None), then=[deltas("Now.")])
    message = whole(serve(engine, CATALOG), thinking={"type": "disabled"}, max_tokens=60)
    assert message["content"][-1] == {"type": "text", "text": "Now."}


@pytest.mark.parametrize(
    ("keep", "thoughts"),
    [("all", 3), ({"type": "thinking_turns", "value": 2}, 2), (None, 1), ({"type": "all"}, 3)],
)
def test_earlier_reasoning_is_cleared_as_asked(serve, keep, thoughts):
    engine = ScriptedEngine(deltas("a"))
    answer = {"role": "assistant", "content": [THOUGHT, text_block("ok")]}
    edit = {"type": "clear_thinking_20251015", "keep": keep}
    messages = [USER, answer] * 3 + [USER]
    whole(serve(engine, CATALOG), messages=messages, context_management={"edits": [edit]})
    assert engine.requests[0].text.count("hm") == thoughts


def test_a_schema_for_the_answer_guides_it(serve):
    engine = ScriptedEngine(deltas('{"x": 1}'))
    config = {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}
    whole(serve(engine), output_config=config, tools=[])
    assert json.loads(engine.requests[0].constraint.text) == SCHEMA


@pytest.mark.parametrize(
    ("choice", "only_f", "is_needed"),
    [
        ({"type": "auto"}, False, False),
        ({"type": "any", "disable_parallel_tool_use": True}, False, True),
        ({"type": "tool", "name": "f"}, True, True),
    ],
)
def test_tool_choice(serve, choice, only_f, is_needed):
    engine = ScriptedEngine(deltas(CALL + CALL))
    message = whole(serve(engine, CATALOG), tools=TOOLS, tool_choice=choice)
    assert message["stop_reason"] == "tool_use"
    assert ("<g>" not in engine.requests[0].text) is only_f
    assert (engine.requests[0].constraint is not None) is is_needed
    if "disable_parallel_tool_use" in choice:
        assert len(message["content"]) == 1


CODE = body(
    stream=True,
    system=[
        {"type": "text", "text": BILLING.format("36ee5")},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    ],
    messages=[
        {"role": "user", "content": [text_block("<system-reminder>x</system-reminder>")]},
        {"role": "system", "content": [text_block("The agents: none.")]},
        {"role": "system", "content": "", "output_config": {"effort": "xhigh"}},
    ],
    tools=[
        {
            **TOOLS[0],
            "description": "F",
            "eager_input_streaming": True,
            "defer_loading": False,
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        }
    ],
    metadata={"user_id": json.dumps({"device_id": "d" * 64, "session_id": "s" * 36})},
    thinking={"type": "adaptive", "display": "updates"},
    context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    output_config={"effort": "high"},
    diagnostics={"previous_message_id": None},
    temperature=1,
)


def test_what_claude_code_sends_is_answered(serve):
    """Fields that public captures of Claude Code 2.1.251 and 2.1.287 have (2026-08)."""
    headers = {
        "x-api-key": "any",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "claude-code-20250219,context-management-2025-06-27",
    }
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    response = client.post(f"{MESSAGES}?beta=true", json=CODE, headers=headers)
    assert response.status_code == 200, response.text
    assert "event: message_stop" in response.text
    quota = body(max_tokens=1, messages=[{"role": "user", "content": "quota"}], metadata={})
    assert client.post(MESSAGES, json=quota).status_code == 200


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"model": "nope"}, "not_found_error", "'nope'"),
        ({"max_tokens": None}, "invalid_request_error", "max_tokens: Field required"),
        ({"temperature": 1.5}, "invalid_request_error", "'temperature'"),
        (
            {"container": "c"},
            "invalid_request_error",
            "container: Extra inputs are not permitted",
        ),
        ({"mcp_servers": [{}]}, "invalid_request_error", "'mcp_servers'"),
        ({"speed": "fast"}, "invalid_request_error", "'speed'"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "invalid_request_error", "bash"),
        ({"tools": [{**TOOLS[0], "input_examples": ["a"]}]}, "invalid_request_error", "examples"),
        ({"tools": TOOLS[:1] * 2}, "invalid_request_error", "tools[1].name"),
        (
            {"tools": [{"name": "f", "input_schema": {"type": "nothing"}}]},
            "invalid_request_error",
            "'tools[0].input_schema'",
        ),
        ({"tool_choice": {"type": "any"}}, "invalid_request_error", "tools"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "h"}},
            "invalid_request_error",
            "'tool_choice.name' is 'h'",
        ),
        ({"thinking": {"type": "enabled"}}, "invalid_request_error", "budget_tokens"),
        (
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            "invalid_request_error",
            "clear_tool_uses_20250919",
        ),
        (
            {
                "context_management": {
                    "edits": [
                        {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns"}}
                    ]
                }
            },
            "invalid_request_error",
            "keep.value: Field required",
        ),
        ({"stop_sequences": ["x"] * 17}, "invalid_request_error", "'stop_sequences'"),
        ({"messages": []}, "invalid_request_error", "messages"),
        ({"messages": [SYSTEM]}, "invalid_request_error", "'user'"),
        (
            {"messages": [USER, ASKED]},
            "invalid_request_error",
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after",
        ),
        ({"messages": [USER, ASKED, USER]}, "invalid_request_error", "c1"),
        ({"messages": [{"role": "user", "content": [RESULT]}]}, "invalid_request_error", "c1"),
        (
            {"messages": [USER, ASKED, {"role": "user", "content": [RESULT, RESULT]}]},
            "invalid_request_error",
            "each tool_use must have a single result",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": [USE, USE]}]},
            "invalid_request_error",
            "`tool_use` ids must be unique",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
            "invalid_request_error",
            "'document'",
        ),
        (
            {"messages": [{"role": "user", "content": [document(NOTE, citations=CITED)]}]},
            "invalid_request_error",
            "citations.enabled",
        ),
        (
            {"messages": [{"role": "user", "content": [document(PDF)]}]},
            "invalid_request_error",
            "'document'",
        ),
    ],
)
def test_a_bad_request_has_anthropics_form(serve, fields, kind, words):
    engine = ScriptedEngine(deltas("a"))
    response = serve(engine, CATALOG).post(MESSAGES, json=body(**fields))
    error = error_of(response, response.status_code)
    assert (error["type"], words in error["message"]) == (kind, True), error
    assert not engine.requests


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (document(NOTE), "<document>\nThe sky.\n</document>\n"),
        (
            document(NOTE, title="Sky", context="of 2026", citations={"enabled": False}),
            "<document>\nSky\nof 2026\nThe sky.\n</document>\n",
        ),
        (document({"type": "content", "content": "a"}), "<document>\na\n</document>\n"),
        (
            document({"type": "content", "content": [{"type": "text", "text": "b"}] * 2}),
            "<document>\nbb\n</document>\n",
        ),
        (document({**NOTE, "data": "x" * 9_000}), "x" * 9_000),
    ],
)
def test_a_document_of_text_is_text_of_the_user_or_of_a_result(serve, block, shown):
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, CATALOG)
    said = {"role": "user", "content": [block, {"type": "text", "text": "Why?"}]}
    result = {"role": "user", "content": [{**RESULT, "content": [block]}]}
    for messages in ([said], [USER, ASKED, result]):
        assert client.post(MESSAGES, json=body(messages=messages)).status_code == 200
        assert shown in engine.requests[-1].text


def test_examples_of_a_tools_input_are_in_its_description(serve):
    engine = ScriptedEngine(deltas("a"))
    shows = "{% for t in tools or [] %}{{ t.function.description }}.{% endfor %}{# <tool_call> #}"
    client = serve(engine, FixedCatalog(facts=replace(FACTS, chat_template=shows)))
    tool = {**TOOLS[0], "input_examples": [{"a": "é"}, {}]}
    tools = [{**tool, "description": "Does"}, {**tool, "name": "h"}]
    assert client.post(MESSAGES, json=body(tools=tools)).status_code == 200
    listed = 'Examples of its input:\n{"a": "é"}\n{}.'
    assert engine.requests[-1].text == f"Does\n\n{listed}{listed}"


def test_a_thread_is_refused_as_tool_runners_know_it(idle):
    error = idle.post(MESSAGES, json=body(thread={"type": "create"})).json()["error"]
    assert error["details"]["error_code"] == "thread_unsupported_request"


def test_errors_outside_of_the_route_have_anthropics_form_on_its_paths_alone(serve):
    keys = KeysInMemory()
    client = serve(ScriptedEngine(deltas("a")), keys=keys, key_pepper=PEPPER)
    wrong = {"x-api-key": "wrong"}
    assert error_of(client.post(MESSAGES, json=body(), headers=wrong), 401) == {
        "type": "authentication_error",
        "message": client.post(CHAT, json={}, headers=wrong).json()["error"]["message"],
    }
    headers = {"x-api-key": keys.add("own1"), "content-type": "application/json"}
    client.headers.update(headers)
    assert client.post(MESSAGES, json=body()).status_code == 200
    assert error_of(client.get(MESSAGES), 405)["type"] == "invalid_request_error"
    batches = error_of(client.post(f"{MESSAGES}/batches", json={}), 404)
    assert (batches["type"], MESSAGES in batches["message"]) == ("not_found_error", True)
    assert error_of(client.post(MESSAGES, content=b"{"), 400)["type"] == "invalid_request_error"
    large = error_of(client.post(MESSAGES, content=b" " * 2_000_001), 413)
    assert large["type"] == "request_too_large"
    deep = error_of(client.post(MESSAGES, content=b"[" * 101), 400)
    assert deep["type"] == "invalid_request_error"


def test_an_idempotency_key_gets_the_same_answer(keyed):
    engine = ScriptedEngine(deltas("a"))
    client, headers = keyed(engine), {"idempotency-key": "k"}
    first = client.post(MESSAGES, json=body(), headers=headers)
    again = client.post(MESSAGES, json=body(), headers=headers)
    assert (first.json(), len(engine.requests)) == (again.json(), 1)
    assert again.headers.get_list("request-id") == [again.headers["x-request-id"]]
    conflict = error_of(client.post(MESSAGES, json=body(max_tokens=3), headers=headers), 409)
    assert conflict["type"] == "conflict_error"


def test_a_callers_limits_count_messages_and_counts_of_tokens():
    who = caller(key=Limits(requests_per_minute=2))
    with TestClient(AsCaller(application(ScriptedEngine(deltas("a"))), who)) as client:
        asked = {"model": "demo", "messages": HI}
        assert client.post(COUNT, json=asked).status_code == 200
        assert client.post(MESSAGES, json=body()).status_code == 200
        refused = client.post(MESSAGES, json=body())
    assert error_of(refused, 429)["type"] == "rate_limit_error"
    assert int(refused.headers["retry-after"]) > 0


def test_an_error_in_a_stream_is_its_last_event(serve):
    *_, last = events(serve(ScriptedEngine(deltas("a", None), error=EngineFailed("it broke"))))
    assert last["error"] == {"type": "api_error", "message": "it broke"}
    assert last["request_id"].startswith("req_")


def test_silence_has_pings(serve):
    engine = ScriptedEngine(deltas("a"), pause_s=0.05)
    found = events(serve(engine, keep_alive_s=0.01))
    pings = [event for event in found if event["type"] == "ping"]
    assert found[0] == {"type": "ping"}
    assert len(pings) > 1
    assert folded([event for event in found if event not in pings])["stop_reason"] == "end_turn"


def test_tokens_are_counted_as_the_prompt_has_them(serve):
    engine = ScriptedEngine()
    client = serve(engine, CATALOG)
    fields = {"system": "You.", "tools": TOOLS[:1], "tool_choice": {"type": "auto"}}
    counted = client.post(COUNT, json={"model": "demo", "messages": HI, **fields})
    rendered = client.post(
        f"{CHAT}/render",
        json={
            "model": "demo",
            "messages": [{"role": "system", "content": "You."}, *HI],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        },
    )
    assert counted.json() == {"input_tokens": rendered.json()["prompt_tokens"]}
    assert not engine.requests
    long = [{"role": "user", "content": "x" * 200}]
    error = error_of(client.post(COUNT, json={"model": "demo", "messages": long}), 400)
    assert error["message"].startswith("prompt is too long")


def test_an_image_of_a_result_stands_in_the_users_message(serve):
    png = base64.b64encode(PNG).decode()
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": png},
    }
    template = (
        "{% for m in messages %}<{{ m.role }}>"
        "{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content or [] %}{{ p.text or '(image)' }}{% endfor %}{% endif %}"
        "{% for c in m.tool_calls or [] %}{{ c.id }}{% endfor %}{% endfor %}"
        "{# tool image <tool_call> #}"
    )
    engine = ScriptedEngine(deltas("a"))
    client = serve(engine, FixedCatalog(facts=replace(FACTS, chat_template=template)))
    seen = {**RESULT, "content": [text_block("Read."), image]}
    messages = [USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [seen]}]
    whole(client, messages=messages, tools=TOOLS[:0])
    assert engine.requests[0].text.endswith("<tool>Read.<user>(image)")
    assert engine.requests[0].images[0].base64 == png


@pytest.mark.anyio
async def test_a_client_that_disconnects_frees_the_engine(serve):
    engine = ScriptedEngine(deltas("ab", None), hangs=True)
    app = serve(engine).app
    data = json.dumps(body(stream=True)).encode()
    received = iter([{"type": "http.request", "body": data, "more_body": False}])

    async def receive():
        for message in received:
            return message
        await engine.given.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": MESSAGES,
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }
    await asyncio.wait_for(app(scope, receive, send), 20)
    assert engine.closed_early == 1
