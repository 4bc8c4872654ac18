"""A body that continues a known one is parsed as it is alone, and only its new items are."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from proxy.api.anthropic.message_body import MessagesBody
from proxy.api.decisions.decision_body import DecisionBody
from proxy.api.http import body_reader, json_shape, known_bodies
from proxy.api.http.body_reader import BodyLimits, BodyReader, BytesInFlight
from proxy.api.http.known_bodies import cut_body
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.responses.response_body import ResponseBody
from proxy.domain.errors import RequestError
from proxy.domain.identity import ALL_SCOPES, Caller, current_caller
from tests.doubles.sandbox import InProcess
from tests.fixtures.examples import examples

LIMITS = BodyLimits()
PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "ü"}'}}
# By kind of body: its list, items (some of which are wrong, or wrong at some places), tools.
KINDS: dict[type[BaseModel], tuple[str, list[Any], list[Any]]] = {
    ChatCompletionBody: (
        "messages",
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Grüße, \\ \" ] } 😀"},
            {"role": "user", "content": [{"type": "text", "text": "]}"}], "name": None},
            {"role": "assistant", "content": "It is.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "4"},
            {"role": "user"},
            {"role": "user", "content": 4.0},
            "text",
        ],
        [{"type": "function", "function": {"name": name, "parameters": PATH}} for name in "ab"],
    ),
    ResponseBody: (
        "input",
        [
            {"role": "user", "content": "Grüße"},
            {"type": "message", "role": "assistant", "content": "]}"},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "4"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"id": "msg_1"},
            {"type": 4},
        ],
        [{"type": "function", "name": name, "parameters": PATH} for name in "ab"],
    ),
    DecisionBody: (
        "input",
        [
            {"role": "user", "content": "Grüße"},
            {"role": "user", "content": [{"type": "input_json", "data": {"a": [1.0, 1, "]"]}}]},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "4"},
            {"role": "user", "content": [{"type": "input_json", "data": 4}]},
            {"type": "reasoning"},
        ],
        [],
    ),
    MessagesBody: (
        "messages",
        [
            {"role": "user", "content": "Grüße"},
            {"role": "user", "content": [{"type": "text", "text": "]}", "cache_control": {}}]},
            {"role": "assistant", "content": [{"type": "redacted_thinking", "data": ""}]},
            {"role": "assistant", "content": "It is."},
            {"role": "wrong", "content": "It is."},
        ],
        [{"name": name, "input_schema": PATH} for name in "ab"],
    ),
}  # fmt: skip


WRONG = [b"", b",", b"]", b"}", b'"', b" ", b"{}", b"\xef\xbb\xbf", b"\xff"]


class Counting(InProcess):
    calls = 0

    async def run(self, caller, function, *args, **kwargs):
        self.calls += 1
        return await super().run(caller, function, *args, **kwargs)


def reader() -> tuple[BodyReader, Counting]:
    sandbox = Counting()
    return BodyReader(LIMITS, sandbox, BytesInFlight(10**9)), sandbox


@pytest.fixture
def _small_is_large(monkeypatch):
    monkeypatch.setattr(json_shape, "CHEAP_CONTAINERS", 8)


async def outcome(parsed) -> object:
    try:
        return await parsed
    except RequestError as error:
        return error.code, error.param, error.message


async def alone(data: bytes, kind: type[BaseModel]) -> BaseModel:
    return body_reader.parse(data, kind, limits=LIMITS)


def written(data, kind: type[BaseModel], name: str, items: list[Any], tools: list[Any]) -> bytes:
    """A body with its members in any order and its JSON in any style."""
    members = {
        name: items,
        "tools": tools,
        "model": "m",
        "max_tokens": data.draw(st.integers(1, 2)),
    }
    if kind is ResponseBody:
        members["max_output_tokens"] = members.pop("max_tokens")
    if kind is DecisionBody:
        del members["tools"], members["max_tokens"]
        members["questions"] = [{"type": "predicate", "instructions": "?"}]
    order = data.draw(st.permutations(list(members)))
    style = data.draw(st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 1}]))
    is_ascii = data.draw(st.booleans())
    return json.dumps({one: members[one] for one in order}, ensure_ascii=is_ascii, **style).encode()


@pytest.mark.usefixtures("_small_is_large")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_each_body_is_what_it_is_alone(kind, data):
    """Also if it is wrong, cut anywhere, or differs in its tools or in an early item."""
    bodies, _ = reader()
    name, kinds, all_tools = KINDS[kind]
    items = st.lists(st.sampled_from(kinds), max_size=4)
    said = [data.draw(st.lists(st.sampled_from(kinds[:4]), min_size=8, max_size=12))]
    texts = [written(data, kind, name, said[0], all_tools)]
    for _ in range(data.draw(st.integers(1, 5))):
        before = data.draw(st.sampled_from(range(len(said))))
        kept = data.draw(st.integers(0, len(said[before])))
        new = data.draw(items)
        said.append(said[before][:kept] + new)
        if data.draw(st.booleans()):  # as a client that writes all its bodies alike
            whole = json.loads(texts[before])
            style = {"ensure_ascii": texts[before].isascii()}
            if b"\n" not in texts[before] and b": " not in texts[before]:
                style["separators"] = (",", ":")
            texts.append(json.dumps({**whole, name: said[-1]}, **style).encode())
        else:
            tools = all_tools[: data.draw(st.integers(0, 2))]
            texts.append(written(data, kind, name, said[-1], tools))
    for text in data.draw(st.lists(st.sampled_from(texts), max_size=2)):  # and broken ones
        at, wrong = data.draw(st.integers(0, len(text))), data.draw(st.sampled_from(WRONG))
        texts.append(text[:at] + wrong + text[at + data.draw(st.integers(0, 1)) :])

    async def compare() -> None:
        for text in texts:
            found = await outcome(bodies.parse(text, kind, "c"))
            assert found == await outcome(alone(text, kind))

    asyncio.run(compare())


def chat(count: int, name: str = "", tools: int = 40) -> dict[str, Any]:
    call = {"name": "read", "arguments": '{"path": "a"}'}
    messages: list[Any] = [{"role": "system", "content": f"You are {name}."}]
    for at in range(count):
        calls = [{"id": f"c{at}", "type": "function", "function": call}]
        messages += (
            {"role": "user", "content": f"{at} tell me more " * 20},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{at}", "content": "It is so. " * 20},
        )
    messages.append({"role": "user", "content": "And?"})
    offered = [{"type": "function", "function": {"name": f"t{at}"}} for at in range(tools)]
    return {"model": "m", "messages": messages, "tools": offered}


def next_turn(body: dict[str, Any]) -> dict[str, Any]:
    said = ({"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"})
    return {**body, "messages": [*body["messages"], *said]}


def parsed(bodies: BodyReader, body: dict[str, Any], caller: str = "c") -> Any:
    data = json.dumps(body).encode()
    return asyncio.run(bodies.parse(data, ChatCompletionBody, caller))


def test_of_the_next_turn_only_the_new_items_are_parsed():
    bodies, sandbox = reader()
    body = chat(100)
    before = parsed(bodies, body)
    for _ in range(5):
        body = next_turn(body)
        found = parsed(bodies, body)
        assert all(a is b for a, b in zip(before.messages, found.messages, strict=False))
        assert all(a is b for a, b in zip(before.tools, found.tools, strict=True))
        before = found
    assert sandbox.calls == 1
    assert len(bodies._known._bodies) == 1  # it serves wherever the ones before did
    for kept, new in ((-3, 1), (4, 0), (10, 1), (4, 2), (10, 0), (200, 1)):  # from earlier turns
        changed = {**body, "messages": body["messages"][:kept] + body["messages"][-1:] * new}
        data = json.dumps(changed).encode()
        assert parsed(bodies, changed) == body_reader.parse(data, type(before), limits=LIMITS)
    assert sandbox.calls == 1
    parsed(bodies, {**body, "tools": body["tools"][1:]})
    assert sandbox.calls == 2


def test_another_tenant_finds_nothing():
    bodies, sandbox = reader()
    body, seen = chat(100), []
    tenants = [
        Caller(tenant=name, key_id=key, scopes=ALL_SCOPES) for name, key in ("ak", "bk", "al")
    ]
    for who in tenants:
        token = current_caller.set(who)
        body = next_turn(body)
        parsed(bodies, body)
        seen.append(sandbox.calls)
        current_caller.reset(token)
    for caller in ("1.1.1.1", "2.2.2.2", "1.1.1.1"):  # who share an identity
        parsed(bodies, body, caller)
        seen.append(sandbox.calls)
    assert seen == [1, 2, 2, 3, 4, 4]


def test_what_is_kept_is_bounded(monkeypatch):
    bodies, sandbox = reader()
    known = bodies._known
    monkeypatch.setattr(known_bodies, "MOST_BODIES", 5)
    for at in range(10):
        parsed(bodies, chat(100, str(at)), str(at))
    assert (len(known._bodies), sandbox.calls) == (5, 10)
    parsed(bodies, next_turn(chat(100, "9")), "9")
    assert (len(known._bodies), sandbox.calls) == (5, 10)
    monkeypatch.setattr(known_bodies, "MOST_BYTES", 2 * known._bodies[0].size)
    parsed(bodies, chat(110), "c")
    assert known.size <= 2 * known._bodies[0].size
    assert 0 < len(known._bodies) <= 2


@pytest.mark.parametrize(
    "text", ['{"messages": [{}], "messages": [{}]}', '{"tools": [1], "a": []}']
)
def test_lists_that_are_not_plain_are_not_known(text):
    assert cut_body(text.encode()) is None
