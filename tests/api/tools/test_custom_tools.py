"""Custom tools over HTTP: requests, answers and streams as OpenAI's SDK knows them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import ValidationError

from proxy.api.openai import answer_bodies
from proxy.domain.constraint import GuideKind
from proxy.domain.model import CAPABILITIES
from tests.api.formats import events
from tests.api.tools.test_tools import CATALOG, CHAT, HI
from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

INPUT = 'SELECT "a"\n\\ é <b>'
RUN = {"type": "custom", "custom": {"name": "run", "description": "Runs SQL."}}
FUNCTION = {"type": "function", "function": {"name": "f"}}
NUMBERS = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[0-9]+"}}
LETTERS = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"+'}}
DEFINITION = "tools[0].custom.format.grammar.definition"


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def custom(name: str, form: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name} | ({"format": form} if form else {})}


def asked(client, **fields: object) -> dict[str, Any]:
    response = client.post(CHAT, json={"model": "demo", "messages": HI, "tools": [RUN], **fields})
    assert response.status_code == 200, response.text
    return response.json()


def refused(client, **fields: object) -> tuple[int, str, str, str]:
    response = client.post(CHAT, json={"model": "demo", "messages": HI, "tools": [RUN], **fields})
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"], error["message"]


def test_a_call_has_the_plain_text(serve):
    client = serve(ScriptedEngine(deltas(call("run", input=INPUT))), CATALOG)
    answer = asked(client)
    choice = ChatCompletion.model_validate(answer).choices[0]
    answer_bodies.ChatCompletion.model_validate(answer)
    (found,) = choice.message.tool_calls
    assert (found.type, found.custom.name, found.custom.input) == ("custom", "run", INPUT)
    assert choice.finish_reason == "tool_calls"


def test_a_stream_has_it_in_pieces_beside_calls_of_functions(serve):
    text = f"{call('run', input=INPUT)}\n{call('f')}\n{call('run', input='')}"
    client = serve(ScriptedEngine(deltas(text)), CATALOG)
    tools = [RUN, FUNCTION]
    streamed = events(
        client.post(
            CHAT, json={"model": "demo", "messages": HI, "tools": tools, "stream": True, "n": 2}
        )
    )
    for chunk in streamed:
        answer_bodies.ChatCompletionChunk.model_validate(chunk)
    for choice in (0, 1):
        found: dict[int, list[dict[str, Any]]] = {}
        for chunk in streamed:
            one = chunk["choices"][0]
            if one["index"] == choice:
                for part in one["delta"].get("tool_calls", ()):
                    found.setdefault(part.pop("index"), []).append(part)
        first, second, third = found.values()
        assert first[0].pop("id")
        assert first[0] == {"type": "custom", "custom": {"name": "run", "input": ""}}
        assert "".join(part["custom"]["input"] for part in first) == INPUT
        assert len(first) > 5
        assert second[0]["type"] == "function"
        assert "".join(part["function"]["arguments"] for part in second) == "{}"
        assert [part["custom"] for part in third] == [{"name": "run", "input": ""}]


def test_chunks_are_those_of_the_sdk_but_for_the_type_that_it_does_not_know(serve):
    client = serve(ScriptedEngine(deltas(call("run", input=INPUT))), CATALOG)
    given = {"model": "demo", "messages": HI, "tools": [RUN], "stream": True}
    parts = []
    for chunk in events(client.post(CHAT, json=given)):
        for part in chunk["choices"][0]["delta"].get("tool_calls", ()):
            if "type" in part:
                with pytest.raises(ValidationError, match="Input should be 'function'"):
                    ChatCompletionChunk.model_validate(chunk)
                del part["type"]
        told = ChatCompletionChunk.model_validate(chunk).choices[0].delta.tool_calls
        parts += [part.model_extra["custom"] for part in told or ()]
    assert parts[0]["name"] == "run"
    assert "".join(part["input"] for part in parts) == INPUT


@pytest.mark.parametrize("form", [None, {"type": "text"}])
def test_a_tool_of_plain_text_is_a_function_to_the_template(serve, form):
    engine = ScriptedEngine(deltas("ok"))
    asked(serve(engine, FixedCatalog()), tools=[custom("run", form)])  # a template without tools
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    assert json.dumps({"name": "run", "parameters": schema}) in engine.requests[0].text
    assert engine.requests[0].constraint is None


@pytest.mark.parametrize(("form", "kind"), [(NUMBERS, "regular expression"), (LETTERS, "Lark")])
def test_a_model_is_shown_the_grammar_and_held_to_it(serve, form, kind):
    engine = ScriptedEngine(deltas("<function_call>"))
    client = serve(engine, FixedCatalog())
    for choice in ("auto", "required", {"type": "custom", "custom": {"name": "run"}}):
        asked(client, tools=[custom("run", form)], tool_choice=choice)
        request = engine.requests[-1]
        assert kind in request.text
        assert form["grammar"]["definition"].replace('"', '\\"') in request.text
        begin = '{\\"input\\": \\"' if choice != "auto" else "triggered_tags"
        assert begin in request.constraint.text


def test_earlier_calls_come_back_as_they_were(serve):
    engine = ScriptedEngine(deltas("ok"))
    earlier = {"id": "c1", "type": "custom", "custom": {"name": "run", "input": INPUT}}
    history = [
        *HI,
        {"role": "assistant", "tool_calls": [{**earlier, "index": 0}]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]
    asked(serve(engine, FixedCatalog()), messages=history)
    written = json.dumps({"name": "run", "arguments": {"input": INPUT}}, ensure_ascii=False)
    assert written in engine.requests[0].text


def test_an_input_of_a_megabyte_in_the_history_is_read(serve):
    big = FixedCatalog(facts=replace(FACTS, context_length=4_000_000))
    engine = ScriptedEngine(deltas("ok"))
    text = '\\"\n<é' * 200_000
    earlier = {"id": "c1", "type": "custom", "custom": {"name": "run", "input": text}}
    history = [
        *HI,
        {"role": "assistant", "tool_calls": [earlier]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]
    asked(serve(engine, big), messages=history)
    assert json.dumps(text, ensure_ascii=False) in engine.requests[0].text


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([RUN, custom("run")], None, "tools[1].custom.name"),
        ([FUNCTION, custom("f")], None, "tools[1].custom.name"),
        ([RUN, {"type": "function", "function": {"name": "run"}}], None, "tools[1].function.name"),
        ([RUN], {"type": "custom", "custom": {"name": "no"}}, "tool_choice.custom.name"),
        ([RUN], {"type": "function", "function": {"name": "run"}}, "tool_choice.function.name"),
        ([FUNCTION], {"type": "custom", "custom": {"name": "f"}}, "tool_choice.custom.name"),
        ([{"type": "other"}], None, "tools"),
        ([{"type": "custom", "function": {"name": "f"}}], None, "tools[0].custom"),
        ([custom("run", {"type": "json"})], None, "tools[0].custom.format.type"),
        ([custom("run", {"type": "grammar"})], None, "tools[0].custom.format.grammar"),
        (
            [custom("run", {"type": "text", "grammar": {}})],
            None,
            "tools[0].custom.format.grammar",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(serve, tools, choice, param):
    client = serve(ScriptedEngine(), CATALOG)
    assert refused(client, tools=tools, tool_choice=choice)[0::2][:2] == (400, param)


def test_one_of_several_may_be_allowed(serve):
    engine = ScriptedEngine(deltas(call("run", input=INPUT)))
    allowed = {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "run"}}]}
    answer = asked(
        serve(engine, CATALOG),
        tools=[RUN, FUNCTION],
        tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
    )
    assert engine.requests[0].text.startswith("<run>[user]")
    assert answer["choices"][0]["message"]["tool_calls"][0]["custom"]["input"] == INPUT


REGEX_LIMIT = 16_384


@pytest.mark.parametrize(
    ("syntax", "definition", "said"),
    [
        ("regex", "(?=a)b", "at character 1"),
        ("regex", "a" * (REGEX_LIMIT + 1), f"more than {REGEX_LIMIT}"),
        ("regex", "a{1000000000}", "at character 2"),
        ("regex", "(" * 65 + ")" * 65, "at character 65"),
        ("lark", "start: x", "'x' is not defined"),
        ("lark", 'begin: "a"', "rule 'start'"),
        ("lark", 'start: "a" %json {}', "line 1"),
        ("lark", "start: /(?!a)b/", "column 8: '(?' is not part of a regular"),
        ("lark", r"start: /\p{L}/", r"\\p"),
        ("lark", 'start: "b".."a"', "line 1, column 8"),
        ("lark", f"start: {'(' * 65}", "64 levels"),
        ("lark", f"start: {' '.join(['a'] * 20_001)}", "20000 tokens"),
    ],
)
def test_a_grammar_that_cannot_be_enforced_is_refused_by_its_path(serve, syntax, definition, said):
    form = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    status, code, param, message = refused(
        serve(ScriptedEngine(), CATALOG), tools=[custom("run", form)]
    )
    assert (status, code, param) == (400, "invalid_parameter", DEFINITION)
    assert said in message


def test_a_grammar_of_a_megabyte_is_not_read(serve):
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "//" + "a" * 1_000_000}}
    client = serve(ScriptedEngine(), CATALOG)
    status, code, param, message = refused(client, tools=[custom("run", form)])
    assert (status, code, param) == (400, "invalid_parameter", "tools")
    assert "256000 bytes" in message


def test_a_grammar_that_was_checked_is_not_checked_again(serve):
    client = serve(ScriptedEngine(deltas("ok")), CATALOG)
    asked(client, tools=[custom("run", LETTERS)])
    calls = len(client.sandbox.callers)
    asked(client, tools=[custom("run", LETTERS)])
    assert len(client.sandbox.callers) == calls


@pytest.mark.parametrize("kind", ["no guides", "no structural tags"])
def test_an_engine_without_guides_takes_plain_text_and_no_grammar(serve, kind):
    if kind == "no guides":
        catalog = FixedCatalog(facts=CATALOG.facts, capabilities=CAPABILITIES - {"constraint"})
    else:
        kinds = frozenset({GuideKind.JSON_SCHEMA, GuideKind.REGEX})
        catalog = FixedCatalog(facts=replace(CATALOG.facts, guide_kinds=kinds))
    client = serve(ScriptedEngine(deltas(call("run", input=INPUT))), catalog)
    for choice in ("auto", "required"):
        found = asked(client, tool_choice=choice)["choices"][0]["message"]["tool_calls"]
        assert found[0]["custom"]["input"] == INPUT
        status, code, param, message = refused(
            client, tools=[custom("run", NUMBERS)], tool_choice=choice
        )
        assert (status, code, param) == (400, "unsupported_parameter", "tools[0].custom.format")
        assert "engine" in message
    assert asked(client, tools=[custom("run", NUMBERS)], tool_choice="none")


def test_a_free_answer_in_pythons_syntax_cannot_be_held(serve):
    template = CATALOG.facts.chat_template.replace("<tool_call>", "[func_name1(")
    catalog = FixedCatalog(facts=replace(FACTS, chat_template=template))
    client = serve(ScriptedEngine(deltas('[run(input="12")]')), catalog)
    tools = [custom("run", NUMBERS)]
    status, code, param, message = refused(client, tools=tools)
    assert (status, code, param) == (400, "unsupported_parameter", "tools[0].custom.format")
    assert "'tool_choice' of required" in message
    found = asked(client, tools=tools, tool_choice="required")["choices"][0]["message"]
    assert found["tool_calls"][0]["custom"]["input"] == "12"


def test_between_tags_what_begins_one_is_escaped_in_both_directions(serve):
    template = (
        "{% for t in tools or [] %}{{ t.function.description }}{% endfor %}"
        "{% for m in messages %}{% for c in m.tool_calls or [] %}[{{ c.function.arguments.input }}]"
        "{% endfor %}{% endfor %}{# <function= <parameter= #}"
    )
    catalog = FixedCatalog(facts=replace(FACTS, chat_template=template))
    written = "&lt;/parameter>&amp;lt;\n"
    text = (
        f"<tool_call>\n<function=run>\n<parameter=input>\n{written}\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": r"[</a-z>&;\n]+"}}
    for given, said in ((form, "</parameter>&lt;\n"), (None, written)):
        engine = ScriptedEngine(deltas(text))
        client = serve(engine, catalog)
        tools = [custom("run", given)]
        (call,) = asked(client, tools=tools)["choices"][0]["message"]["tool_calls"]
        assert call["custom"]["input"] == said
        result = {"role": "tool", "tool_call_id": call["id"], "content": "ok"}
        asked(
            client, tools=tools, messages=[*HI, {"role": "assistant", "tool_calls": [call]}, result]
        )
        assert engine.requests[1].text.endswith(f"[{written}]")
        assert ("&lt;" in engine.requests[0].text) is (given is not None)


def test_a_socket_takes_the_same_body(serve):
    client = serve(ScriptedEngine(deltas(call("run", input=INPUT))), CATALOG)
    with client.websocket_connect("/v1/chat/completions/ws") as socket:
        socket.send_json({"model": "demo", "messages": HI, "tools": [RUN]})
        said = ""
        while (chunk := socket.receive_json())["choices"][0]["finish_reason"] is None:
            parts = chunk["choices"][0]["delta"].get("tool_calls", ())
            said += "".join(part["custom"]["input"] for part in parts)
    assert said == INPUT
