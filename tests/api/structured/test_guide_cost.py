"""Schemas and patterns that cost too much: their own request is refused, and no other one waits."""

from __future__ import annotations

import resource
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.access.process_sandbox import ProcessSandbox
from tests.api.formats import ASKED, CHAT, SCHEMA, answering, named
from tests.doubles.engine import FixedCatalog, ScriptedEngine, deltas
from tests.doubles.sandbox import InProcess

HUGE = "(a{500}){500}"  # 12 MB as an automaton
# 4 KB that take 955 MB and 3 s to compile
COSTLY = {"type": "object", "properties": {f"p{i}": {"pattern": f"{HUGE}{i}"} for i in range(80)}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": COSTLY}}
ATTACKS = [
    (CHAT, {"guided_json": COSTLY}, "guided_json"),
    (CHAT, {"tools": [TOOL]}, "tools[0].function.parameters"),
    (
        CHAT,
        {"guided_json": COSTLY, "stream": True, "nvext": {"annotations": ["request_id"]}},
        "guided_json",
    ),
]


@pytest.mark.parametrize(("path", "body", "field"), ATTACKS)
def test_a_schema_that_costs_too_much_is_refused_while_others_are_answered(
    serve, path, body, field
):
    sandbox = ProcessSandbox(cpu_s=0.5, memory_bytes=300_000_000)
    client = serve(ScriptedEngine(deltas("a")), sandbox=sandbox)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ThreadPoolExecutor(1) as pool:
        attack = pool.submit(client.post, path, json={**ASKED, **body})
        answered = 0
        while not attack.done():
            assert client.post(CHAT, json=ASKED).status_code == 200
            answered += 1
            time.sleep(0.02)  # leaves the processor to the attack
    error = attack.result().json()["error"]
    assert (attack.result().status_code, error["code"]) == (422, "invalid_schema")
    assert error["param"] == field
    assert "it takes more than 0.5 s or 300 MB to check" in error["message"]
    assert answered > 3  # in half a second or more
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 100_000


def test_a_costly_pattern_is_refused_as_a_parameter(serve):
    sandbox = ProcessSandbox(cpu_s=1.0, memory_bytes=5_000_000)
    client = serve(ScriptedEngine(deltas("a")), sandbox=sandbox)
    answer = client.post(CHAT, json={**ASKED, "guided_regex": HUGE})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_parameter")
    assert error["param"] == "guided_regex"


def test_answers_are_checked_in_the_sandbox(serve):
    unique = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    client = serve(answering("[1, 1]", "[1, 2]"), sandbox=ProcessSandbox())
    answer = client.post(CHAT, json={**ASKED, **named(unique, strict=True)})
    assert answer.json()["choices"][0]["message"]["content"] == "[1, 2]"
    assert answer.headers["x-attempts"] == "2"


def test_what_was_examined_once_is_not_examined_again(serve):
    sandbox = InProcess()
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    catalog = FixedCatalog()
    client = serve(ScriptedEngine(deltas("a")), catalog, sandbox)
    calls = []
    for body in (
        {"tools": [tool, {**tool, "function": {**tool["function"], "name": "g"}}]},
        {"tools": [tool]},
        {"guided_json": SCHEMA},
        {"guided_json": SCHEMA},
        {"guided_json": {**SCHEMA, "title": "another"}},
    ):
        before = len(sandbox.callers)
        client.post(CHAT, json={**ASKED, **body})
        calls.append(len(sandbox.callers) - before)
    assert calls == [1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"guided_regex": "a" * 16_385}, "guided_regex"),
        ({"guided_grammar": f'start: "a" {" " * 256_000}\n'}, "guided_grammar"),
        ({"guided_choice": [str(at) for at in range(1025)]}, "guided_choice"),
        ({"guided_choice": ["a" * 65_537]}, "guided_choice"),
    ],
    ids=["regex", "grammar", "choices", "choice"],
)
def test_the_size_of_guides_is_bounded(serve, body, field):
    answer = serve(ScriptedEngine(deltas("a"))).post(CHAT, json={**ASKED, **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_parameter", field)
    assert "more than" in error["message"]
