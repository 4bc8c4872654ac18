"""What /v1/responses answers: items, events, every field; checked by the specification's types."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from proxy.api.protocols import words_at
from proxy.domain.errors import EngineFailed
from proxy.domain.output import Alternative, FinishReason, TokenLogProb
from proxy.operate.replay.comparison import facts_of
from tests.api.responses.formats import RESPONSES, body, events, folded, settled, stream, whole
from tests.api.tools.test_tools import CALL, CATALOG, SCHEMA
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.examples import examples

TOOLS = [
    {"type": "function", "name": "f", "parameters": SCHEMA},
    {"type": "function", "name": "g"},
]
ALTERNATIVE = Alternative(b"z", -2.0)
LOGGED = [
    replace(one, log_probs=(TokenLogProb(-0.5, (ALTERNATIVE,)),) if one.token_bytes[0] else ())
    for one in deltas("ab")
]
PIECES = st.sampled_from(["a", " é", "\n", CALL, CALL.replace("f", "g", 1), "STOP", "}"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(
    thought=st.sampled_from(["", "<think>hm\n</think>\n\n", "<think></think>"]),
    pieces=st.lists(PIECES, max_size=5),
    finish=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    include=st.sampled_from([[], ["reasoning.encrypted_content"]]),
)
def test_the_stream_folds_to_the_whole_response(serve, thought, pieces, finish, include):
    client = serve(ScriptedEngine(deltas(f"{thought}{''.join(pieces)} ", finish)), CATALOG)
    fields = {"tools": TOOLS, "stop": ["STOP"], "include": include}
    assert settled(folded(stream(client, **fields))) == settled(whole(client, **fields))


def test_an_answer_has_every_field_of_the_specification(serve):
    types = pytest.importorskip("openresponses_types.types", reason="needs Python 3.11")
    client = serve(ScriptedEngine(deltas(f"<think>hm</think>Now.{CALL}")), CATALOG)
    fields = {"tools": TOOLS, "text": {"format": {"type": "json_object"}}}
    for found in (whole(client), whole(client, **fields)):
        types.ResponseResource.model_validate(found, strict=False)
        required = {
            name
            for name, field in types.ResponseResource.model_fields.items()
            if field.is_required()
        }
        assert required <= found.keys()
        Response.model_validate(found)
    for event in stream(client, tools=TOOLS):
        if not event["type"].startswith("response.reasoning"):  # OpenAI has another name for these
            name = "".join(map(str.capitalize, event["type"].replace(".", "_").split("_")))
            getattr(types, f"{name}StreamingEvent").model_validate(event)


def test_items_keep_their_order_and_their_ids_agree(serve):
    client = serve(ScriptedEngine(deltas(f"<think>hm</think>Now.{CALL}")), CATALOG)
    found = whole(client, tools=TOOLS, include=["reasoning.encrypted_content"])
    own = found["id"].removeprefix("resp_")
    thought, message, call = found["output"]
    assert thought == {
        "id": f"rs_{own}0",
        "type": "reasoning",
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "encrypted_content": thought["encrypted_content"],
    }
    assert message["content"] == [
        {"type": "output_text", "text": "Now.", "annotations": [], "logprobs": []}
    ]
    assert call == {
        "id": f"fc_{own}2",
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{own}2",
        "name": "f",
        "arguments": '{"x": 1}',
    }
    assert found["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": found["usage"]["output_tokens"],
        "output_tokens_details": found["usage"]["output_tokens_details"],
        "total_tokens": 7 + found["usage"]["output_tokens"],
    }
    assert found["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_a_response_that_is_cut_is_incomplete(serve):
    client = serve(ScriptedEngine(deltas("Well", FinishReason.LENGTH)))
    found = whole(client, max_output_tokens=4)
    assert (found["status"], found["completed_at"]) == ("incomplete", None)
    assert found["incomplete_details"] == {"reason": "max_output_tokens"}
    assert found["output"][0]["status"] == "incomplete"
    assert folded(stream(client))["status"] == "incomplete"


def test_an_answer_without_a_token_has_an_empty_message(serve):
    client = serve(ScriptedEngine(deltas("")))
    assert whole(client)["output"][0]["content"][0]["text"] == ""
    assert folded(stream(client))["output"][0]["type"] == "message"


def test_log_probabilities_stand_beside_the_text(serve):
    client = serve(ScriptedEngine(LOGGED))
    for fields in ({"top_logprobs": 2}, {"include": ["message.output_text.logprobs"]}):
        (part,) = whole(client, **fields)["output"][0]["content"]
        assert [one["token"] for one in part["logprobs"]] == ["a", "b"]
        deltas_ = [one for one in stream(client, **fields) if one["type"].endswith("text.delta")]
        assert [one["logprobs"][0]["token"] for one in deltas_] == ["a", "b"]
    assert whole(client)["output"][0]["content"][0]["logprobs"] == []


def test_the_request_is_repeated_with_what_holds_where_it_says_nothing(serve):
    client = serve(ScriptedEngine(deltas("ok")))
    usual = whole(client)
    assert {name: usual[name] for name in ("temperature", "top_p", "tool_choice", "tools")} == {
        "temperature": 1.0,
        "top_p": 1.0,
        "tool_choice": "auto",
        "tools": [],
    }
    given_ = {
        "instructions": "be brief",
        "temperature": 0.5,
        "metadata": {"a": "b"},
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "truncation": "auto",
        "prompt_cache_key": "k",
        "parallel_tool_calls": False,
        "max_output_tokens": 9,
    }
    found = whole(client, **given_)
    assert {name: found[name] for name in given_} == given_


def test_an_error_has_its_status_before_the_first_event_and_is_an_event_after_it(serve):
    refused = serve(ScriptedEngine(error=EngineFailed("gone"))).post(
        RESPONSES, json=body(stream=True)
    )
    assert (refused.status_code, refused.json()["error"]["message"]) == (500, "gone")
    client = serve(ScriptedEngine(deltas("ab", None), error=EngineFailed("gone")))
    found = events(client.post(RESPONSES, json=body(stream=True)).text)
    assert [one["type"] for one in found[-2:]] == ["error", "response.failed"]
    assert found[-2]["error"]["message"] == found[-2]["message"] == "gone"
    assert found[-1]["response"]["error"] == {"code": "server_error", "message": "gone"}
    assert found[-1]["response"]["output"][0]["status"] == "incomplete"
    assert [one["sequence_number"] for one in found] == list(range(len(found)))


def test_the_servers_own_tools_appear_under_their_names(serve, policy):
    call = '<tool_call>\n{"name": "weather", "arguments": {"x": "Rome"}}\n</tool_call>'
    engine = ScriptedEngine(deltas(call), then=[deltas("It is sunny.")])
    client = serve(engine, CATALOG, models_file=policy())
    found = whole(client)
    tool, message = found["output"]
    assert (tool["type"], tool["name"], tool["server_label"]) == ("mcp_call", "weather", "server")
    assert (json.loads(tool["arguments"]), tool["error"]) == ({"x": "Rome"}, None)
    assert message["content"][0]["text"] == "It is sunny."
    engine.requests.clear()
    assert settled(
        folded(
            stream(
                serve(
                    ScriptedEngine(deltas(call), then=[deltas("It is sunny.")]),
                    CATALOG,
                    models_file=policy(),
                )
            )
        )
    ) == settled(found)
    # it can be sent back
    again = whole(
        client,
        input=[
            {"role": "user", "content": "hi"},
            tool,
            message,
            {"role": "user", "content": "and now?"},
        ],
    )
    assert again["status"] == "completed"
    assert "[tool]" in (engine.requests[-1].text or "")
    refused = client.post(RESPONSES, json=body(max_tool_calls=1))
    assert refused.json()["error"]["param"] == "max_tool_calls"


CUSTOM = {
    "type": "custom",
    "name": "patch",
    "format": {"type": "grammar", "syntax": "regex", "definition": "[ab\n]+"},
}
WRITTEN = '<tool_call>\n{"name": "patch", "arguments": {"input": "a\\nb"}}\n</tool_call>'


def test_a_custom_tool_gets_plain_text(serve):
    engine = ScriptedEngine(deltas(WRITTEN))
    client = serve(engine, CATALOG)
    found = whole(client, tools=[CUSTOM], tool_choice={"type": "custom", "name": "patch"})
    (call,) = found["output"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "patch", "a\nb")
    assert found["tools"] == [CUSTOM]
    assert settled(folded(stream(client, tools=[CUSTOM])))["output"] == settled(found)["output"]
    assert engine.requests[0].constraint is not None
    output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}
    whole(client, tools=[CUSTOM], input=[{"role": "user", "content": "hi"}, call, output])
    assert f"[tool]done{call['call_id']}" in engine.requests[-1].text
    wrong = {**CUSTOM, "format": {**CUSTOM["format"], "definition": "("}}
    error = client.post(RESPONSES, json=body(tools=[wrong])).json()["error"]
    assert error["param"] == "tools[0].format.definition"


def test_a_replay_compares_responses_as_it_does_chats(serve):
    client = serve(ScriptedEngine(deltas(f"<think>hm</think>Now.{CALL}")), CATALOG)
    words = words_at(RESPONSES)
    one, other = (
        facts_of(200, client.post(RESPONSES, json=body(tools=TOOLS, stream=streams)).text, words)
        for streams in (False, True)
    )
    assert one == other
    assert (one.finishes, one.usage[0]) == (("completed",), 7)
    assert "Now." in one.text


@pytest.mark.anyio
async def test_a_client_that_disconnects_ends_the_generation():
    engine = ScriptedEngine(deltas("abc", None), hangs=True)
    async with started(application(engine)) as app:
        asked = Call(app, RESPONSES, body(stream=True), {})
        await asked.until(lambda call: b"response.output_text.delta" in call.body)
        await asked.disconnect()
    assert engine.closed_early == 1


def test_the_effort_reaches_the_template(serve):
    catalog = FixedCatalog(
        facts=replace(FACTS, chat_template="{{ reasoning_effort }}|{{ messages[0].content }}")
    )
    engine = ScriptedEngine(deltas("ok"))
    found = whole(serve(engine, catalog), reasoning={"effort": "low", "summary": "auto"})
    assert found["reasoning"] == {"effort": "low", "summary": "auto"}
    assert engine.requests[0].text == "low|hi"
