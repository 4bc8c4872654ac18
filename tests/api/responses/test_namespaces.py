"""Tools in namespaces, in input items, and found by the client's own search: the model sees one
list of functions, and the client gets back its own names.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api.responses.tool_bodies import FunctionTool, NamespaceTool, Offer
from proxy.domain.output import FinishReason
from tests.api.responses.formats import RESPONSES, body, stream, whole
from tests.api.responses.test_input import CATALOG, USER, refused
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.pictures import PNG, data_url


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}, **fields}


def namespace(name: str, *functions: str) -> dict[str, Any]:
    tools = [function(each) for each in functions]
    return {"type": "namespace", "name": name, "description": "Of it.", "tools": tools}


def call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


SEARCH = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
NAMES = st.text("ab_.-", min_size=1, max_size=64)


@given(st.dictionaries(st.text(min_size=1, max_size=128), st.sets(NAMES, min_size=1), max_size=4))
def test_each_tool_has_a_name_of_its_own_that_a_function_may_have(spaces):
    bodies = [NamespaceTool.model_validate(namespace(name, *each)) for name, each in spaces.items()]
    plain = [FunctionTool.model_validate(function("a__a"))]
    offer = Offer.of([*bodies, *plain], (), 1_000)
    keys = {one.listed.key: name for name, one in offer.tools.items()}
    assert len(keys) == 1 + sum(map(len, spaces.values()))
    for (space, name), flat in keys.items():
        FunctionTool.model_validate(function(flat))
        assert offer.name(space, name) == flat
    assert keys[None, "a__a"] == "a__a"


@pytest.mark.parametrize("streams", [False, True])
def test_a_call_gives_back_name_and_namespace(serve, streams):
    engine = ScriptedEngine(deltas(call("mcp__x__js", '{"a": 1}')))
    client, fields = serve(engine, CATALOG), {"tools": [namespace("mcp__x", "js"), function("js")]}
    (item,) = (
        stream(client, **fields)[-1]["response"]["output"]
        if streams
        else whole(client, **fields)["output"]
    )
    assert engine.requests[0].text.startswith("<js><mcp__x__js>")
    assert (item["type"], item["name"], item["namespace"]) == ("function_call", "js", "mcp__x")
    assert json.loads(item["arguments"]) == {"a": 1}
    back = [USER, item, {"type": "function_call_output", "call_id": item["call_id"], "output": "5"}]
    whole(client, input=back, **fields)
    (other,) = whole(serve(ScriptedEngine(deltas(call("js"))), CATALOG), **fields)["output"]
    assert (other["name"], "namespace" in other) == ("js", False)


def test_tools_that_a_conversation_repeats_are_bounded(serve):
    added = {
        "type": "additional_tools",
        "tools": [namespace("ns", *(f"f{at}" for at in range(99)))],
    }
    error = refused(serve, input=[*[added] * 6, USER])
    assert (error["param"], error["code"]) == ("tools", "invalid_parameter")


def test_a_namespace_that_is_gone_keeps_its_calls(serve):
    engine = ScriptedEngine(deltas("ok"))
    item = {"type": "function_call", "call_id": "c", "name": "js", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "5"}
    whole(serve(engine, CATALOG), input=[USER, {**item, "namespace": "gone"}, result])
    assert "5" in engine.requests[0].text


def test_tools_of_input_items_can_be_called_and_chosen(serve):
    engine = ScriptedEngine(deltas(call("ns__f")))
    added = {"type": "additional_tools", "role": "developer", "tools": [namespace("ns", "f")]}
    choice = {"type": "function", "name": "f", "namespace": "ns"}
    client = serve(engine, CATALOG)
    (item,) = whole(client, input=[added, USER, added], tool_choice=choice)["output"]
    assert engine.requests[0].text == "<ns__f>[user]hi"
    assert (item["name"], item["namespace"]) == ("f", "ns")


def test_tools_of_an_earlier_response_can_be_called(serve):
    engine = ScriptedEngine(deltas("ok"))
    client = serve(engine, CATALOG)
    added = {"type": "additional_tools", "role": "developer", "tools": [function("f")]}
    first = whole(client, input=[added, USER])
    whole(client, input="more", previous_response_id=first["id"])
    assert engine.requests[1].text.startswith("<f>[user]hi")


@pytest.mark.parametrize("streams", [False, True])
def test_the_clients_search_is_a_call_of_its_own_type(serve, streams):
    engine = ScriptedEngine(deltas(call("tool_search", '{"query": "x"}')))
    client = serve(engine, CATALOG)
    if streams:
        events = stream(client, tools=[SEARCH])
        assert [one["sequence_number"] for one in events] == list(range(len(events)))
        kinds = [one["type"] for one in events[2:-1]]
        assert kinds == ["response.output_item.added", "response.output_item.done"]
        (item,) = events[-1]["response"]["output"]
        assert events[-2]["item"] == item
    else:
        (item,) = whole(client, tools=[SEARCH])["output"]
    assert (item["type"], item["execution"]) == ("tool_search_call", "client")
    assert item["arguments"] == {"query": "x"}
    found = {
        "type": "tool_search_output",
        "call_id": item["call_id"],
        "execution": "client",
        "status": "completed",
        "tools": [{**namespace("ns", "f"), "tools": [function("f", defer_loading=True)]}],
    }
    engine = ScriptedEngine(deltas(call("ns__f")))
    answer = whole(serve(engine, CATALOG), tools=[SEARCH], input=[USER, item, found])
    assert "ns__f" in engine.requests[0].text.rpartition("[tool")[2]
    assert (answer["output"][0]["name"], answer["output"][0]["namespace"]) == ("f", "ns")


def test_a_search_that_is_cut_off_has_the_arguments_that_are_complete(serve):
    text = call("tool_search", '{"query": "x", "limit": 5}')
    for length in range(len('<tool_call>\n{"name": "tool_search", "arguments": {'), len(text)):
        engine = ScriptedEngine(deltas(text[:length], FinishReason.LENGTH))
        (item,) = whole(serve(engine, CATALOG), tools=[SEARCH])["output"]
        assert {"query": "x", "limit": 5}.items() >= item["arguments"].items()


FOREIGN = [
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "rain"}},
    {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "A" * 99_999},
    {"type": "code_interpreter_call", "id": "ci", "code": "1+1", "outputs": None},
    {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1}},
    {"type": "computer_call_output", "call_id": "c", "output": {"image_url": "data:" + "A" * 9999}},
    {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "c", "output": "made.txt"},
    {"type": "mcp_list_tools", "server_label": "x", "tools": [{"name": "f"}]},
    {"type": "mcp_approval_request", "name": "f", "arguments": "{}"},
    {"type": "tool_search_call", "execution": "server", "arguments": {}},
    {"type": "tool_search_output", "execution": "server", "tools": [function("late")]},
    {"type": "of_tomorrow", "deep": [[[[[[[[[[["x"]]]]]]]]]]]},
    {"type": "of_tomorrow"},
]


@pytest.mark.parametrize("item", FOREIGN, ids=lambda item: item["type"])
def test_items_of_another_servers_tools_become_text_or_are_left_out(serve, item):
    engine = ScriptedEngine(deltas("ok"))
    said = {"role": "assistant", "content": "So it is."}
    client = serve(engine, CATALOG)
    first = whole(client, input=[USER, item, said, USER])
    text = engine.requests[0].text
    assert "So it is." in text
    assert len(text) < 10_000
    for word in ("rain", "1+1", "made.txt"):
        assert (word in json.dumps(item)) == (word in text)
    whole(client, input="more", previous_response_id=first["id"])
    assert engine.requests[1].text.startswith(text)


def test_an_image_of_a_result_becomes_a_sentence_where_the_model_reads_none(serve):
    capabilities = CATALOG.capabilities - {"images"}
    catalog = type(CATALOG)(facts=CATALOG.facts, capabilities=capabilities)
    picture = {"type": "input_image", "image_url": data_url("png", PNG)}
    result = {"type": "function_call_output", "call_id": "c", "output": [picture]}
    items = [
        USER,
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        result,
    ]
    engine = ScriptedEngine(deltas("ok"))
    whole(serve(engine, catalog), input=items)
    assert "reads no images" in engine.requests[0].text
    assert engine.requests[0].images == ()
    given = [{"type": "message", "role": "user", "content": [picture]}]
    client = serve(engine, catalog)
    error = client.post(RESPONSES, json=body(input=[*items, *given])).json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", "input[3].content[0]")
    client = serve(engine, catalog, unreadable_result_images="refuse")
    error = client.post(RESPONSES, json=body(input=items)).json()["error"]
    assert error["param"] == "input[2].output[0]"
