"""json_shape: bodies that are slow to parse do not reach the event loop's parser."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api.http import body_reader, json_shape
from proxy.api.http.body_reader import BodyLimits
from proxy.api.http.json_shape import JsonLimits, exceeds_depth
from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.domain.errors import RequestError

MB = 1_000_000
MOST_S = 0.025  # CPU time of the thread; five times the goal, for a slow machine
HEAD = b'{"model":"m","messages":[{"role":"user","content":"hi"}]'


def listed(item: bytes, name: bytes = b"chat_template_kwargs") -> Callable[[int], bytes]:
    """A body of about `size` bytes whose field has many equal items."""

    def make(size: int) -> bytes:
        items = b",".join(itertools.repeat(item, size // (len(item) + 1)))
        value = (
            b'{"a":[' + items + b"]}" if name == b"chat_template_kwargs" else b"[" + items + b"]"
        )
        return HEAD + b',"' + name + b'":' + value + b"}"

    return make


def keys(name: bytes, value: bytes) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        members = b",".join(b'"%d":%b' % (at, value) for at in range(size // (10 + len(value))))
        return HEAD + b',"' + name + b'":{' + members + b"}}"

    return make


def content(unit: bytes) -> Callable[[int], bytes]:
    return lambda size: HEAD.replace(b"hi", unit * (size // len(unit))) + b"}"


def messages(item: bytes) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        items = b",".join(itertools.repeat(item, size // (len(item) + 1)))
        return b'{"model":"m","messages":[' + items + b"]}"

    return make


CALL = (
    b'{"role":"assistant","tool_calls":'
    b'[{"id":"a","type":"function","function":{"name":"f","arguments":"%b"}}]}'
)
SLOW = {
    "lists of one": listed(b"[1]", b"documents"),
    "empty lists": listed(b"[]"),
    "deep lists": listed(b"[" * 90 + b"]" * 90),
    "objects": listed(b'{"a":1}'),
    "small numbers": listed(b"1"),
    "long numbers": listed(b"9" * 4000),
    "empty strings": listed(b'""'),
    "token ids": listed(b"12345", b"prompt_token_ids"),
    "wrong token ids": listed(b"-1", b"prompt_token_ids"),
    "stops": listed(b'"a"', b"stop"),
    "tools": listed(b'{"type":"function","function":{"name":"f","parameters":{}}}', b"tools"),
    "biases": keys(b"logit_bias", b"1"),
    "metadata": keys(b"metadata", b'"1"'),
    "unknown fields": lambda size: HEAD + b"," + keys(b"x", b"1")(size)[len(HEAD) + 6 : -2] + b"}",
    "equal keys": lambda size: HEAD + b',"user":"a"' * (size // 11) + b"}",
    "escapes": content(rb"\u0041"),
    "quotes in a string": content(rb"\""),
    "backslashes": content(rb"\\"),
    "text": content("é".encode()),
    "messages": messages(b'{"role":"user","content":"a"}'),
    "messages without content": messages(b'{"role":"user"}'),
    "parts": messages(b'{"role":"user","content":[{"type":"text","text":"a"}]}'),
    "arguments": messages(CALL % (b"[" + b"{}," * 500 + b"{}]")),
    "open brackets": lambda size: b"[" * size,
    "quotes": lambda size: b'"' * size,
    "blanks": lambda size: b"{" + b" " * size + b"}",
}


def cpu_s(work: Callable[[], object]) -> float:
    """The least of five runs: what others do on the machine is not counted."""
    times = []
    for _ in range(5):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return min(times)


def parsed(data: bytes) -> None:
    try:
        body_reader.parse(data, ChatCompletionBody, limits=BodyLimits())
    except RequestError:
        return


@pytest.mark.parametrize("make", SLOW.values(), ids=SLOW)
def test_a_body_that_may_be_parsed_on_the_event_loop_is_parsed_at_once(make):
    """The largest one of this form that passes as cheap."""
    sizes = (int(MB * 0.8**step) for step in range(60))
    data = next(data for size in sizes if json_shape.is_cheap(data := make(size)))
    assert cpu_s(lambda: parsed(data)) < MOST_S


@pytest.mark.parametrize("make", SLOW.values(), ids=SLOW)
def test_to_find_out_costs_nearly_nothing(make):
    for size in (json_shape.CHEAP_BYTES - 5000, 2 * MB):
        data = make(size)
        assert cpu_s(lambda data=data: json_shape.is_cheap(data)) < MOST_S / 5


@pytest.mark.parametrize("make", SLOW.values(), ids=SLOW)
def test_a_body_of_two_megabytes_is_parsed_or_refused_within_the_sandbox_limit(make):
    assert cpu_s(lambda: parsed(make(2 * MB - 1000))) < 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"[[],[]]", "has 3 arrays and objects, at most 2 are allowed"),
        (b"[1,2,3,4,5,6]", "has about 6 values, at most 5 are allowed"),
        (b'{"a":"b","c":"d"}', "has 4 strings and keys, at most 3 are allowed"),
        (b"[[1]]", "nests arrays and objects more than 1 deep"),
        (rb'["[[[,,,\"[[[,,,,"]', None),
    ],
)
def test_a_fault_names_what_is_too_much(text, told):
    limits = JsonLimits(depth=1, containers=2, strings=3, values=5)
    assert json_shape.fault(text, limits) == told


def test_what_a_large_honest_request_has_is_allowed():
    ids = listed(b"123456", b"prompt_token_ids")(7 * 128_000)
    chat = messages(b'{"role":"user","content":"%b"}' % (b"word " * 180))(2048 * 929)
    for data in (ids, chat):
        assert body_reader.parse(data, ChatCompletionBody, limits=BodyLimits())


VALUES = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(VALUES, st.integers(1, 5))
def test_it_is_the_depth_of_the_value(value, most):
    assert exceeds_depth(json.dumps(value).encode(), most) is (depth(value) > most)


@pytest.mark.parametrize("piece", [b'\\"', b"[", b'"', b"{}", b'[""', b"\\"])
def test_its_time_is_linear_whatever_the_text(piece):
    began = time.process_time()
    exceeds_depth(b'"' + piece * 500_000, 64)
    assert time.process_time() - began < 2
