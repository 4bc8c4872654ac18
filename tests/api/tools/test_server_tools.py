"""Server-run tools over HTTP on both sides: the model's calls are run, the client gets answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from proxy.domain.output import FinishReason
from tests.api.formats import events
from tests.api.tools.test_tools import CATALOG, CHAT, HI, accumulated
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.stack import HANG_S

THEIRS = [{"type": "function", "function": {"name": "theirs"}}]


def call(name: str, x: object = "Oslo") -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': {'x': x}})}\n</tool_call>"


def rounds(*texts: str) -> ScriptedEngine:
    first, *others = map(deltas, texts)
    return ScriptedEngine(first, then=others)


def whole(client, **fields: object) -> dict[str, Any]:
    response = client.post(CHAT, json={"model": "demo", "messages": HI, **fields})
    assert response.status_code == 200, response.text
    ChatCompletion.model_validate(response.json())
    return response.json()


def streamed(client, **fields: object) -> list[dict[str, Any]]:
    return events(
        client.post(CHAT, json={"model": "demo", "messages": HI, "stream": True, **fields})
    )


def refused(client, **fields: object) -> tuple[int, str, str]:
    response = client.post(CHAT, json={"model": "demo", "messages": HI, **fields})
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def test_the_model_calls_the_proxy_runs_and_the_client_gets_the_answer(serve, policy, server):
    engine = rounds(f"Let me see. {call('weather')}", "12 degrees.")
    client = serve(engine, CATALOG, models_file=policy())
    answer = whole(client)
    choice = answer["choices"][0]
    assert choice["message"] == {
        "role": "assistant",
        "content": "Let me see. 12 degrees.",
        "refusal": None,
    }
    assert (choice["finish_reason"], server.bodies) == ("stop", [{"x": "Oslo"}])
    first, second = (request.text for request in engine.requests)
    assert first == "<weather><slow>[user]hi[assistant]"
    assert second.startswith("<weather><slow>[user]hi[assistant]Let me see. ")
    assert second.endswith("[assistant]")
    assert '[tool]{"celsius": 12}' in second
    assert answer["usage"]["prompt_tokens"] == 2 * 7


@pytest.mark.parametrize(("n", "events"), [(1, False), (2, True)])
@pytest.mark.parametrize(
    "texts",
    [
        (f"Let me see.\n{call('weather')}\n{call('weather', 'Rome')}", "12 degrees."),
        (f"<think>hm</think>{call('weather')}", "<think>so</think>12"),
        (call("weather", 3), call("weather"), "12"),
        (f"{call('weather')}{call('theirs')}",),
        (call("theirs"),),
        (call("weather"),),
        ("plain",),
    ],
)
def test_the_stream_adds_up_to_the_whole(serve, policy, texts, n, events):
    fields = {"tools": THEIRS, "n": n, "server_tool_events": events}
    # scripts go by request, and the choices' rounds come side by side
    scripts = [text for text in texts for _ in range(n)]
    answer = whole(serve(rounds(*scripts), CATALOG, models_file=policy()), **fields)
    usage = {"stream_options": {"include_usage": True}}
    chunks = streamed(serve(rounds(*scripts), CATALOG, models_file=policy()), **fields, **usage)
    folded = accumulated(chunks)
    assert folded["usage"]["total_tokens"] == answer["usage"]["total_tokens"]
    assert len(folded["choices"]) == n
    for told, one in zip(folded["choices"], answer["choices"], strict=True):
        assert told["finish_reason"] == one["finish_reason"]
        for key in ("content", "reasoning", "reasoning_content"):
            assert (told["message"].get(key) or None) == (one["message"].get(key) or None), key
        for key in ("tool_calls", "server_tool_calls"):
            assert stable(told["message"].get(key)) == stable(one["message"].get(key)), key
        assert ("server_tool_calls" in one["message"]) <= events


def stable(calls: list[dict[str, Any]] | None) -> list[tuple[Any, ...]]:
    """Without ids and durations, which no two runs share."""
    return [
        (
            one.get("index") if "status" in one else None,
            (one.get("function") or one)["name"],
            (one.get("function") or one)["arguments"],
            one.get("status"),
            one.get("result"),
        )
        for one in calls or []
    ]


def test_calls_are_told_where_asked_for_and_nowhere_else(serve, policy):
    def message(**fields: object) -> dict[str, Any]:
        client = serve(rounds(call("weather"), "ok"), CATALOG, models_file=policy())
        return whole(client, **fields)["choices"][0]["message"]

    assert "server_tool_calls" not in message()
    (told,) = message(server_tool_events=True)["server_tool_calls"]
    assert told.pop("id").startswith("call_")
    assert told.pop("duration_ms") > 0
    assert told == {
        "index": 0,
        "name": "weather",
        "arguments": '{"x": "Oslo"}',
        "status": "ok",
        "result": '{"celsius": 12}',
    }


def test_an_answer_that_calls_both_goes_to_the_client_with_its_own_calls(serve, policy, server):
    engine = rounds(f"{call('weather')}\n{call('theirs')}", "never")
    choice = whole(serve(engine, CATALOG, models_file=policy()), tools=THEIRS)["choices"][0]
    assert [one["function"]["name"] for one in choice["message"]["tool_calls"]] == ["theirs"]
    assert (choice["finish_reason"], server.seen, len(engine.requests)) == ("tool_calls", [], 1)


@pytest.mark.parametrize(
    "fields",
    [{"server_tools": False}, {"tool_choice": "none"}],
    ids=["left out", "no tools at all"],
)
def test_they_are_left_out_where_the_caller_says_so(serve, policy, server, fields):
    engine = rounds(call("weather"))
    message = whole(serve(engine, CATALOG, models_file=policy()), **fields)["choices"][0]["message"]
    assert (message["content"], server.seen) == (call("weather"), [])
    assert engine.requests[0].text == "[user]hi[assistant]"


def test_a_tool_of_the_same_name_is_refused_unless_ours_are_left_out(serve, policy):
    client = serve(rounds("ok", call("weather")), CATALOG, models_file=policy())
    mine = [*THEIRS, {"type": "function", "function": {"name": "weather"}}]
    param = "tools[1].function.name"
    assert refused(client, tools=mine) == (400, "invalid_parameter", param)
    whole(client, tools=mine, server_tools=False)
    choice = whole(client, tools=mine, server_tools=False)["choices"][0]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"


@pytest.mark.parametrize(
    ("choice", "seen"),
    [
        ("required", "<weather><slow>"),
        ({"type": "function", "function": {"name": "weather"}}, "<weather>"),
    ],
)
def test_a_choice_may_name_them_and_holds_for_the_first_round(serve, policy, choice, seen):
    engine = rounds(call("weather"), "12")
    answer = whole(serve(engine, CATALOG, models_file=policy()), tool_choice=choice)["choices"][0]
    assert (answer["message"]["content"], answer["finish_reason"]) == ("12", "stop")
    first, second = (request.text for request in engine.requests)
    assert first.startswith(f"{seen}[user]")
    assert second.startswith("<weather><slow>[user]")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"server_tools": True}, "server_tools"),
        ({"server_tool_events": True}, "server_tool_events"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
            "tool_choice",
        ),
    ],
)
def test_a_model_without_them_refuses_to_be_asked_for_them(serve, fields, param):
    status, _, told = refused(serve(rounds("ok"), CATALOG), **fields)
    assert (status, told) == (400, param)


def test_an_answer_of_a_form_gets_them_only_where_asked_for(serve, policy, server):
    engine = rounds('{"a": 1}', call("weather"), '{"a": 2}')
    client = serve(engine, CATALOG, models_file=policy())
    form = {"response_format": {"type": "json_object"}}
    assert whole(client, **form)["choices"][0]["message"]["content"] == '{"a": 1}'
    assert engine.requests[0].text == "[user]hi[assistant]"
    told = whole(client, **form, server_tools=True)
    assert told["choices"][0]["message"]["content"] == '{"a": 2}'
    assert (engine.requests[1].text[:9], len(server.seen)) == ("<weather>", 1)
    assert all(request.constraint is not None for request in engine.requests)


def test_the_bound_of_rounds_ends_in_an_answer_without_them(serve, policy, server):
    engine = rounds(call("weather"), call("weather"), "That is all I know.")
    client = serve(engine, CATALOG, models_file=policy(max_tool_rounds=2))
    choice = whole(client)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (
        "That is all I know.",
        "stop",
    )
    assert (len(server.seen), engine.requests[2].text[:6]) == (2, "[user]")


def test_a_tool_that_takes_too_long_is_a_result(serve, policy, server):
    engine = rounds(call("slow"), "It did not answer.")
    client = serve(engine, CATALOG, models_file=policy({"timeout_s": 0.2}))
    assert whole(client)["choices"][0]["message"]["content"] == "It did not answer."
    assert "[tool]The tool did not answer within 0.2 s." in engine.requests[1].text


def test_a_private_address_is_a_result_and_no_connection(serve, policy, server):
    engine = rounds(call("weather"), "ok")
    client = serve(engine, CATALOG, models_file=policy({"allow_private_addresses": False}))
    (told,) = whole(client, server_tool_events=True)["choices"][0]["message"]["server_tool_calls"]
    assert (told["status"], server.seen) == ("refused_address", [])


def test_a_limit_of_tokens_inside_a_call_is_length_and_runs_nothing(serve, policy, server):
    engine = ScriptedEngine(deltas(call("weather")[:-16], FinishReason.LENGTH))
    choice = whole(serve(engine, CATALOG, models_file=policy()))["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "")
    assert server.seen == []


def test_max_tokens_holds_for_all_rounds(serve, policy):
    engine = rounds(call("weather"), "12")
    cost = len(call("weather")) + 1
    whole(serve(engine, CATALOG, models_file=policy()), max_tokens=cost + 9)
    assert [request.max_tokens for request in engine.requests] == [cost + 9, 9]


def test_a_missing_secret_stops_the_start_by_name(policy, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    path = policy({"headers": {"Authorization": "Bearer ${NO_SUCH_KEY}"}})
    with pytest.raises(ValueError, match=r"models\.demo\.server_tools\.\w+\.headers.*NO_SUCH_KEY"):
        application(rounds("x"), CATALOG, models_file=path)


def test_a_secret_reaches_the_tool_only(serve, policy, server, monkeypatch, caplog, capfd):
    monkeypatch.setenv("TOOL_KEY", "s3cr3t-value")
    tool = {"url": server.url("/echo"), "headers": {"Authorization": "Bearer ${TOOL_KEY}"}}
    engine = rounds(call("weather"), "ok")
    client = serve(engine, CATALOG, models_file=policy(tool))
    answer = whole(client, server_tool_events=True)
    assert server.seen[0][2]["authorization"] == "Bearer s3cr3t-value"
    told = [json.dumps(answer), engine.requests[1].text, caplog.text, *capfd.readouterr()]
    assert not any("s3cr3t" in text for text in told)
    assert "server_tool" in "".join(told)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_a_tool_runs_ends_the_tools_call(policy, server, stream):
    engine = rounds(call("slow"), "never")
    app = application(engine, CATALOG, models_file=policy())

    async def leave() -> None:
        async with started(app):
            asked = Call(app, CHAT, {"model": "demo", "messages": HI, "stream": stream}, {})
            assert await asyncio.to_thread(server.asked.wait, HANG_S)
            await asyncio.wait_for(asked.disconnect(), HANG_S)

    asyncio.run(leave())
    assert server.left.wait(HANG_S)
    assert len(engine.requests) == 1
