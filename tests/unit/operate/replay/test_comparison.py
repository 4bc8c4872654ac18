"""What is the same, and what differs, between a recorded answer and another one."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, timezone

import pytest

from proxy.api.http.route_scopes import ROUTES
from proxy.api.protocols import words_at
from proxy.journal.journal import Recorded
from proxy.operate.replay.comparison import Replayed, compare, facts_of

CHAT = "/v1/chat/completions"
SEEDED, GREEDY, RANDOM = '{"seed":1}', '{"temperature":0}', '{"temperature":1}'
CALLS = [{"id": "call_1", "function": {"name": "f", "arguments": '{"a":1}'}}]
RECORDED = sorted(path for path, route in ROUTES.items() if route.is_recorded)
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


def whole(text: str = "Hello", finish: str = "stop", usage: object = USAGE, **more: object) -> str:
    message = {"role": "assistant", "content": text, **more}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"id": "x", "choices": [choice], "usage": usage})


def events(*chunks: object) -> str:
    return (
        "".join(f"id: 1\ndata: {json.dumps(each, ensure_ascii=False)}\n\n" for each in chunks)
        + "data: [DONE]\n\n"
    )


def chunk(index: int = 0, finish: str | None = None, **delta: object) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def recorded(body: str, answer: str, status: int = 200) -> Recorded:
    return Recorded(
        at=datetime(2026, 3, 1, 12, tzinfo=timezone.utc),
        tenant="acme",
        key_id="k",
        request_id="req_1",
        path=CHAT,
        model="demo",
        body=body,
        status=status,
        answer=answer,
        is_complete=True,
        ttft_ms=10.0,
        duration_ms=100.0,
    )


def test_a_stream_lines_and_a_whole_answer_have_the_same_facts():
    call = {"index": 0, "id": "call_9", "function": {"name": "f", "arguments": '{"a'}}
    more = {"index": 0, "function": {"arguments": '":1}'}}
    stream = events(
        *(
            chunk(role="assistant", content=""),
            chunk(reasoning_content="hm"),
            chunk(content="Hel\u2028"),
        ),
        *(chunk(content="lo"), chunk(tool_calls=[call]), chunk(tool_calls=[more])),
        *(chunk(finish="tool_calls"), {"choices": [], "usage": USAGE}),
    )
    complete = whole("Hel\u2028lo", finish="tool_calls", tool_calls=CALLS, reasoning_content="hm")
    words = words_at(CHAT)
    lines = stream.replace("id: 1\n", "").replace("data: ", "").replace("\n\n", "\n")
    facts = facts_of(200, stream, words)
    assert facts == facts_of(200, lines, words)
    assert (facts.finishes, facts.usage) == (("tool_calls",), (3, 5))
    assert facts == facts_of(200, complete, words)


@pytest.mark.parametrize(
    "answer",
    [
        *("", "no json", "[1]", '{"choices": 5}', 'data: {"a\n\n', "\x00"),
        '{"choices": [1, {"delta": [], "index": "x"}], "usage": 1, "error": 2, "content": []}',
        '{"a":' * 900 + "1" + "}" * 900,
    ],
)
@pytest.mark.parametrize("path", [*RECORDED, "/v1/unknown"])
def test_any_answer_has_facts(path, answer):
    facts = facts_of(502, answer, words_at(path))
    assert (facts.status, facts.text, facts.finishes) == (502, answer, ())


def test_every_recorded_protocol_has_words():
    assert all(words_at(path) for path in RECORDED)


@pytest.mark.parametrize(
    ("body", "before", "after", "differs", "first"),
    [
        (SEEDED, whole(), whole(), (), None),
        (GREEDY, whole(), whole("Help"), ("text",), 3),
        (GREEDY, whole(), whole("Hello!"), ("text",), 5),
        (RANDOM, whole(), whole("Bye", usage={**USAGE, "completion_tokens": 9}), (), None),
        (RANDOM, whole(), whole("Bye", "length"), ("finish",), None),
        (SEEDED, whole(), whole(usage={**USAGE, "completion_tokens": 9}), ("usage",), None),
        (SEEDED, whole(), whole(usage=None), (), None),
        (SEEDED, whole(tool_calls=CALLS), whole(), ("text",), 5),
        ("{}", whole(), '{"error": {"code": "x"}}', ("finish",), None),
    ],
)
def test_what_differs_is_named(body, before, after, differs, first):
    found = compare(recorded(body, before), Replayed(status=200, answer=after, ttft_ms=20.0))
    assert (found.differs, found.first_difference) == (differs, first)
    assert found.ttft_ratio == 2.0
    line = json.dumps(asdict(found), default=str)
    assert "Hello" not in line
    assert "Bye" not in line
