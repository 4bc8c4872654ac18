"""Tools and reasoning over HTTP: what the model writes, as OpenAI's SDK understands it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy.domain.output import FinishReason
from tests.api.formats import events
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

CHAT = "/v1/chat/completions"
TEMPLATE = (
    "{% for t in tools or [] %}<{{ t.function.name }}>{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content or '' }}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.arguments.x }}{% endfor %}"
    "{{ m.tool_call_id or '' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}{# <tool_call> <think> #}"
)
CATALOG = FixedCatalog(facts=replace(FACTS, chat_template=TEMPLATE))
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "g"}},
]
HI = [{"role": "user", "content": "hi"}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'


def body(**fields: object) -> dict[str, Any]:
    return {"model": "demo", "messages": HI, "tools": TOOLS, **fields}


def whole(client, **fields: object) -> dict[str, Any]:
    response = client.post(CHAT, json=body(**fields))
    assert response.status_code == 200, response.text
    ChatCompletion.model_validate(response.json())
    return response.json()


def chunks(client, **fields: object) -> list[dict[str, Any]]:
    return events(client.post(CHAT, json=body(stream=True, **fields)))


def accumulated(streamed: list[dict[str, Any]]) -> dict[str, Any]:
    state = ChatCompletionStreamState()
    for chunk in streamed:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return state.get_final_completion().model_dump()


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"Let me see. {CALL}\n{CALL.replace('f', 'g', 1)}",
        f"<think>\nhm\n</think>\n\n{CALL}",
        "<think>\nhm\n</think>\n\nyes",
        "<think>only thoughts",
        f"<think>Like {CALL} but no.</think>\n\nNo.",
        f"<think>I call\n{CALL}",
        f"Write:\n```xml\n{CALL}\n```\n",
        "Okay, so.</think>\n\nyes",
        "plain",
        "",
    ],
)
def test_the_stream_adds_up_to_the_whole(serve, text):
    client = serve(ScriptedEngine(deltas(text)), CATALOG)
    choice = whole(client)["choices"][0]
    folded = accumulated(chunks(client))["choices"][0]
    assert folded["finish_reason"] == choice["finish_reason"]
    message = choice["message"]
    for key in ("role", "content", "reasoning", "reasoning_content"):
        assert folded["message"].get(key) == message.get(key), key
    for told, one in zip(
        folded["message"]["tool_calls"] or [], message.get("tool_calls", []), strict=True
    ):
        assert told["function"]["name"] == one["function"]["name"]
        assert told["function"]["arguments"] == one["function"]["arguments"]
        assert told["type"] == one["type"] == "function"


@pytest.mark.parametrize(
    "text", [CALL, CALL[:-15], f"<think>hm</think>{CALL}", "<think>hm", "<think>hm</think>a"]
)
def test_an_answer_goes_back_as_the_sdk_keeps_it(serve, text):
    engine = ScriptedEngine(deltas(text))
    client = serve(engine, CATALOG)
    choice = ChatCompletion.model_validate(whole(client)).choices[0]
    given = choice.message.model_dump(exclude_unset=True)
    folded = accumulated(chunks(client))["choices"][0]["message"]
    prompts = []
    for message in (given, folded):
        calls = message.get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": one["id"], "content": "1"} for one in calls]
        whole(client, messages=[*HI, message, *results, *HI])
        call = (calls or [{"id": ""}])[0]
        prompts.append(engine.requests[-1].text.replace(call["id"] or "-", ""))
    assert prompts[0] == prompts[1]
    assert ("hm" in prompts[0]) == ("hm" in text)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"{CALL}\n</tool_call>", None),
        (f'<tool_call>{{"name": 1}}</tool_call>\n{CALL}\n</tool_call> ok', '{"name": 1}\n\n ok'),
        ("</tool_call>\nHi <tool_call>", "\nHi "),
    ],
)
def test_marks_of_broken_calls_reach_no_client(serve, text, content):
    client = serve(ScriptedEngine(deltas(text)), CATALOG)
    assert whole(client)["choices"][0]["message"]["content"] == content
    assert accumulated(chunks(client))["choices"][0]["message"]["content"] == content


@pytest.mark.parametrize(
    ("text", "finish", "reasoning", "content", "arguments"),
    [
        ("<think>Use <tool_call>?</think>4.", "stop", "Use <tool_call>?", "4.", []),
        (f"<think>{CALL}? No.</think>No.", "stop", f"{CALL}? No.", "No.", []),
        (f"<think>hm {CALL}", "tool_calls", "hm", None, ['{"x": 1}']),
        (f"Like `{CALL}`.", "stop", None, f"Like `{CALL}`.", []),
        (f"```\n{CALL}\n```", "stop", None, f"```\n{CALL}\n```", []),
        (CALL[:-15], "tool_calls", None, None, ['{"x": 1}']),
        (CALL[:-16], "length", None, None, ['{"x":']),
        ("Hm.</think>\n\n4.", "stop", None, "Hm.\n\n4.", []),
    ],
)
def test_where_a_call_counts(serve, text, finish, reasoning, content, arguments):
    choice = whole(serve(ScriptedEngine(deltas(text)), CATALOG))["choices"][0]
    message = choice["message"]
    assert (message.get("reasoning"), message["content"]) == (reasoning, content)
    found = [call["function"]["arguments"] for call in message.get("tool_calls", [])]
    assert (choice["finish_reason"], found) == (finish, arguments)


# As DeepSeek R1's: a thought is opened after what a user says, and not after a tool's result.
OPENS = TEMPLATE.replace(
    "[assistant]", "[assistant]{% if messages[-1].role != 'tool' %}<think>\n{% endif %}"
)
RESULT = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 2}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "4"},
]


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "calls", "thought"),
    [
        ("Hm.</think>\n\n4.", "Hm.", "4.", 0, 11),
        (f"Like {CALL}, no.</think>\n\n4.", f"Like {CALL}, no.", "4.", 0, None),
        (f"Hm.</think>\n\n{CALL}", "Hm.", None, 1, 11),
        ("<think>\nHm.</think>\n\n4.", "Hm.", "4.", 0, None),
        ("It is 4.", None, "It is 4.", 0, 0),
        ("Hm `a`.</think>`4`", "Hm `a`.", "`4`", 0, None),
        ("Hm `a`</think>4", "Hm `a`", "4", 0, None),
        ("Use `</think>`.", None, "Use `</think>`.", 0, 0),
        (f"I see. {CALL}", None, "I see. ", 1, 0),
        (f"I see. {CALL}</think>", "I see. " + CALL, None, 0, None),
        ("Hm.<think>4.", None, "Hm.<think>4.", 0, 0),
        ("a" * 5_000 + "</think>4.", None, "a" * 5_000 + "4.", 0, 0),
    ],
)
def test_a_thought_that_the_template_leaves_out_after_a_result(
    serve, text, reasoning, content, calls, thought
):
    engine = ScriptedEngine(deltas(text))
    client = serve(engine, FixedCatalog(facts=replace(FACTS, chat_template=OPENS)))
    found = whole(client, messages=[*HI, *RESULT])
    assert engine.requests[-1].text.endswith("[assistant]")
    message = found["choices"][0]["message"]
    assert (message.get("reasoning"), message["content"]) == (reasoning, content)
    assert len(message.get("tool_calls", [])) == calls
    if thought is not None:
        counted = found["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert counted == thought
    folded = accumulated(chunks(client, messages=[*HI, *RESULT]))["choices"][0]["message"]
    assert (folded.get("reasoning"), folded["content"]) == (reasoning, content)
    whole(client)
    assert engine.requests[-1].text.endswith("<think>\n")


@pytest.mark.parametrize("template", [OPENS, TEMPLATE])
def test_an_answer_after_a_result_streams_where_no_thought_can_be_open(serve, template):
    facts = replace(FACTS, chat_template=template)
    client = serve(ScriptedEngine(deltas("It is 4, I see.")), FixedCatalog(facts=facts))
    streamed = chunks(client, messages=[*HI, *RESULT])
    pieces = [one["choices"][0]["delta"].get("content") for one in streamed if one["choices"]]
    assert (len(list(filter(None, pieces))) == 1) is (template == OPENS)
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "integer"}}}
    client = serve(ScriptedEngine(deltas("12345678")), FixedCatalog(facts=facts))
    streamed = chunks(client, messages=[*HI, *RESULT], response_format=schema, tools=[])
    pieces = [one["choices"][0]["delta"].get("content") for one in streamed if one["choices"]]
    assert len(list(filter(None, pieces))) > 1  # a guide says where the thought begins


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"stop": "STOP"}),
        ("/v1/responses", {"input": "hi", "stop": "STOP"}),
        ("/v1/messages", {"max_tokens": 99, "stop_sequences": ["STOP"]}),
    ],
)
def test_a_stop_string_ends_the_answer_and_not_the_thought(serve, path, fields):
    text = "<think>First a STOP here.</think>\n\nFinal STOP answer"
    client = serve(ScriptedEngine(deltas(text)), CATALOG)
    asked = body(**fields)
    if path == "/v1/responses":
        del asked["messages"], asked["tools"]
    if path == "/v1/messages":
        del asked["tools"]
    answer = client.post(path, json=asked)
    assert answer.status_code == 200, answer.text
    assert "First a STOP here." in answer.text
    assert "Final " in answer.text
    assert 'answer"' not in answer.text


def test_an_answer_without_tools_may_quote_the_syntax(serve):
    client = serve(ScriptedEngine(deltas(CALL)), CATALOG)
    assert whole(client, tool_choice="none")["choices"][0]["message"]["content"] == CALL


def test_a_call_has_no_content_and_says_so(serve):
    choice = whole(serve(ScriptedEngine(deltas(CALL)), CATALOG))["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert call.pop("id").startswith("call_")
    assert call == {"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")


def test_a_call_streams_as_it_is_written(serve):
    streamed = chunks(serve(ScriptedEngine(deltas(CALL)), CATALOG))
    told = [one for chunk in streamed for one in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert (told[0]["index"], told[0]["function"]) == (0, {"name": "f", "arguments": ""})
    assert "".join(one["function"]["arguments"] for one in told) == '{"x": 1}'
    assert len(told) > 4
    assert "content" not in {key for chunk in streamed[1:] for key in chunk["choices"][0]["delta"]}


def test_the_template_gets_tools_calls_and_results(serve):
    engine = ScriptedEngine(deltas("ok"))
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 5}'}}
    messages = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
    ]
    whole(serve(engine, CATALOG), messages=messages)
    assert engine.requests[0].text == "<f><g>[user]hi[assistant]hmc15[tool]42c1[assistant]"


@pytest.mark.parametrize(
    ("choice", "seen"),
    [
        ("auto", "<f><g>"),
        ("none", ""),
        ({"type": "function", "function": {"name": "g"}}, "<g>"),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "f"}}],
                },
            },
            "<f>",
        ),
    ],
)
def test_the_model_sees_the_tools_that_it_may_call(serve, choice, seen):
    engine = ScriptedEngine(deltas("ok"))
    whole(serve(engine, CATALOG), tool_choice=choice)
    assert engine.requests[0].text == f"{seen}[user]hi[assistant]"


def test_parallel_calls_are_cut_to_one_and_the_engine_is_stopped(serve):
    engine = ScriptedEngine(deltas(f"{CALL}\n{CALL}", None), hangs=True)
    choice = whole(serve(engine, CATALOG), parallel_tool_calls=False)["choices"][0]
    assert len(choice["message"]["tool_calls"]) == 1
    assert (choice["finish_reason"], engine.closed_early) == ("tool_calls", 1)


def test_reasoning_has_the_names_of_the_setting(serve):
    engine = ScriptedEngine(deltas("<think>hm</think>yes"))
    message = whole(serve(engine, CATALOG))["choices"][0]["message"]
    assert (message["reasoning"], message["reasoning_content"]) == ("hm", "hm")
    client = serve(engine, CATALOG, reasoning_fields="reasoning_content")
    answer = whole(client)
    message = answer["choices"][0]["message"]
    assert ("reasoning" in message, message["reasoning_content"]) == (False, "hm")
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 2


def test_the_thinking_budget_ends_the_reasoning_and_the_answer_goes_on(serve):
    thinks, answers = deltas("<think>abcdefgh", None), deltas("yes")
    engine = ScriptedEngine(thinks, then=[answers])
    fields = {"thinking_token_budget": 5, "max_tokens": 50}
    answer = whole(serve(engine, CATALOG), **fields)
    message = answer["choices"][0]["message"]
    # the opening tag's last byte and four more
    assert (message["reasoning"], message["content"]) == ("abcd", "yes")
    first, second = engine.requests
    assert second.text == f"{first.text}<think>{message['reasoning']}\n</think>\n\n"
    assert second.max_tokens == 50 - (len("<think>") + len(message["reasoning"]))
    assert second.id != first.id


def test_a_budget_of_nothing_where_the_prompt_opens_the_reasoning(serve):
    template = TEMPLATE.replace("[assistant]", "[assistant]<think>")
    catalog = FixedCatalog(facts=replace(FACTS, chat_template=template))
    engine = ScriptedEngine(deltas("yes"))
    message = whole(serve(engine, catalog), thinking_token_budget=0)["choices"][0]["message"]
    assert (message["content"], len(engine.requests)) == ("yes", 1)
    assert engine.requests[0].text.endswith("<think>\n</think>\n\n")


def test_a_budget_for_a_model_that_does_not_think_is_refused(serve):
    given = body(thinking_token_budget=5)
    del given["tools"]
    response = serve(ScriptedEngine()).post(CHAT, json=given)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "thinking_token_budget")


def test_effort_none_keeps_a_model_from_thinking_or_ends_it_at_once(serve):
    template = TEMPLATE + "{% if enable_thinking is false %}<think></think>{% endif %}"
    engine = ScriptedEngine(deltas("yes"))
    catalog = FixedCatalog(facts=replace(FACTS, chat_template=template))
    message = whole(serve(engine, catalog), reasoning_effort="none")["choices"][0]["message"]
    assert engine.requests[0].text.endswith("[assistant]<think></think>")
    assert message["content"] == "yes"
    engine = ScriptedEngine(deltas("<think>hm, "), then=[deltas("yes")])
    message = whole(serve(engine, CATALOG), reasoning_effort="none")["choices"][0]["message"]
    assert engine.requests[-1].text.rstrip().endswith("</think>")
    assert message["content"] == "yes"


def test_a_limit_inside_a_call_is_told(serve):
    engine = ScriptedEngine(deltas(CALL[:-16], FinishReason.LENGTH))
    choice = whole(serve(engine, CATALOG))["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"].startswith('{"x"')


def test_continuous_usage_and_ids_come_with_calls(serve):
    client = serve(ScriptedEngine(deltas(CALL)), CATALOG)
    options = {"include_usage": True, "continuous_usage_stats": True}
    streamed = chunks(client, stream_options=options)
    told = [chunk["usage"]["completion_tokens"] for chunk in streamed]
    assert told == sorted(told)
    assert told[-1] == len(CALL) + 1
