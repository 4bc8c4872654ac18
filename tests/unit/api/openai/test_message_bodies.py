"""Messages of a chat: an answer of ours is taken back as clients keep it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from proxy.api.openai.message_bodies import MessageBody
from proxy.domain.request import Message

BODY = TypeAdapter(MessageBody)
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def assistant(**fields: Any) -> Message:
    return BODY.validate_python({"role": "assistant", **fields}).to_domain()


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"reasoning": "a", "reasoning_content": "a"}, "a"),
        ({"reasoning": "a", "reasoning_content": "b"}, "a"),
        ({"reasoning_content": "b"}, "b"),
    ],
)
def test_reasoning_comes_by_either_name_or_both(fields, reasoning):
    message = assistant(content=None, **fields)
    assert (message.content, message.reasoning) == ("", reasoning)


@pytest.mark.parametrize(
    "fields",
    [
        {"annotations": []},
        {"parsed": {"a": 1}},
        {"server_tool_calls": [{"index": 0, "id": "c1"}]},
        {"id": "msg_1"},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0}]},
        {"extra_content": {"google": {"thought_signature": "x"}}},
        {"cache_control": {"type": "ephemeral"}},
        {"content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"provider_specific_fields": {"refusal": None, "reasoning": "hm"}},
        {"refusal": None, "audio": None, "function_call": None},
    ],
)
def test_what_only_answers_have_is_left_out(fields):
    assert assistant(**{"content": "hi", **fields}) == assistant(content="hi")


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
@pytest.mark.parametrize(
    "fields",
    [
        {"id": "msg_1"},
        {"id": 7},
        {"cache_control": {"a": "b"}},
        *(
            {"content": [{"type": "text", "text": "hi", **mark}]}
            for mark in (
                {"id": "lc_1"},  # LangChain's, of MCP's results
                {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
                {"prompt_cache_breakpoint": {"mode": "explicit"}},
            )
        ),
    ],
)
def test_what_clients_send_along_in_any_message_is_left_out(role, fields):
    told = {"role": role, "content": "hi", **({"tool_call_id": "c1"} if role == "tool" else {})}
    assert BODY.validate_python({**told, **fields}).to_domain() == (
        BODY.validate_python(told).to_domain()
    )


@pytest.mark.parametrize("fields", [{"role": "tool", "tool_call_id": "c1"}, {"role": "assistant"}])
def test_a_result_or_an_answer_of_no_parts_is_empty_text(fields):
    """As MCP tells of a tool that found nothing, and as clients keep an answer of calls alone."""
    assert BODY.validate_python({"content": [], **fields}).to_domain().content == ""


def test_a_refusal_in_parts_is_text():
    parts = [{"type": "text", "text": "Well: "}, {"type": "refusal", "refusal": "no."}]
    assert assistant(content=parts).content == "Well: no."


@pytest.mark.parametrize("role", ["system", "developer", "user", "tool"])
def test_only_an_assistant_refuses(role):
    told = {"role": role, "content": [{"type": "refusal", "refusal": "no"}], "tool_call_id": "c"}
    with pytest.raises(ValidationError, match="refusal"):
        BODY.validate_python(told if role == "tool" else {**told, "tool_call_id": None})


def test_what_an_sdk_adds_to_calls_is_left_out():
    function = {**CALL["function"], "parsed_arguments": {"a": 1}}
    added = {
        "index": 0,
        "extra_content": {"google": {"thought_signature": "x"}},
        "provider_specific_fields": {"thought_signature": "x"},
    }
    told = assistant(content=None, tool_calls=[{**CALL, **added, "function": function}])
    assert told == assistant(tool_calls=[CALL])
    assert told.content is None


@pytest.mark.parametrize("fields", [{}, {"content": None}, {"content": []}, {"annotations": []}])
def test_an_answer_that_says_nothing_is_empty_text(fields):
    """As clients keep one that was all reasoning."""
    assert assistant(**fields) == assistant(content="")


def test_what_is_not_ours_is_refused():
    with pytest.raises(ValidationError):
        assistant(audio={"id": "x"}, content="")


@pytest.mark.parametrize(
    ("call", "where"),
    [
        ({**CALL, "function": {"name": "f"}}, "arguments"),
        ({**CALL, "function": {"name": "f", "arguments": None}}, "arguments"),
        ({"id": "c1", "function": CALL["function"]}, "type"),
        ({**CALL, "type": "custom"}, "custom"),
        ({**CALL, "type": "other"}, "type"),
        ({"type": "function", "function": CALL["function"]}, "id"),
    ],
)
def test_a_former_call_lacks_nothing_that_openais_api_requires(call, where):
    with pytest.raises(ValidationError) as caught:
        assistant(tool_calls=[call])
    assert caught.value.errors()[0]["loc"][-1] == where


NESTED = ['{"a":' + "[" * 20_000, *('{"a":' + "[" * n + "]" * n + "}" for n in (101, 900, 20_000))]


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        *((each, "{}") for each in ("", " \n", "null")),
        *((each, each) for each in ("{}", '{"a": {"b": [1]}}', ' {"a": "ü"}\n')),
        *(
            (each, {"invalid_arguments": each})
            for each in ('{"a": "x', "[1]", "5", '"ü"', "{'a': 1}", "9" * 5000, r'{"a": "\ud800"}')
        ),
        # deeper than a body may be
        *((each, {"invalid_arguments": each}) for each in NESTED),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "handed on",
)
def test_arguments_of_a_former_call_that_are_no_object_are_handed_on_in_one(arguments, taken):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    found = assistant(tool_calls=[call]).tool_calls[0].arguments
    assert (found if isinstance(taken, str) else json.loads(found)) == taken


@pytest.mark.parametrize("name", ["a/b", "wetter_für", "get_weather:0", "x" * 600])
def test_a_former_call_has_the_name_and_id_that_the_model_wrote(name):
    call = {**CALL, "id": f"functions.{name}:0", "function": {"name": name, "arguments": "{}"}}
    message = assistant(tool_calls=[call])
    assert (message.tool_calls[0].name, message.tool_calls[0].id) == (name, call["id"])
    told = {"role": "tool", "content": "1", "tool_call_id": call["id"], "name": name}
    assert BODY.validate_python(told).to_domain().tool_call_id == call["id"]


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_a_message_of_no_parts_that_is_no_answer_is_refused(role):
    with pytest.raises(ValidationError, match="at least 1 item"):
        BODY.validate_python({"role": role, "content": []})
