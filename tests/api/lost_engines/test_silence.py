"""While nothing is generated: signs of life for clients, and an end for engines that stall."""

from __future__ import annotations

import json

import pytest

from proxy.domain.errors import ErrorCode, InvalidRequest
from tests.doubles.engine import ScriptedEngine, deltas

CHAT, SSE, STREAM, WHOLE = "/v1/chat/completions", "/chat/sse", "/chat/stream", "/chat/json"
MESSAGES = {"messages": [{"role": "user", "content": "hi"}]}
BODIES = {CHAT: {**MESSAGES, "model": "demo", "stream": True}, SSE: MESSAGES}
COMMENT = ": keep-alive"
EVENTS = pytest.mark.parametrize("path", [CHAT, SSE])


@EVENTS
@pytest.mark.parametrize("lost", [0, 1])
def test_a_silent_stream_gets_comments_before_the_first_token_too(serve, path, lost):
    """Also while it is sent to Triton again."""
    engine = ScriptedEngine(deltas("ab"), pause_s=0.05, lost=lost)
    response = serve(engine, keep_alive_s=0.02).post(path, json=BODIES[path])
    first, *parts, done, _ = response.text.split("\n\n")
    assert (first, done) == (COMMENT, "data: [DONE]")
    assert COMMENT in parts
    assert parts.count(COMMENT) < len(parts)


@EVENTS
def test_a_lively_stream_gets_none(serve, path):
    response = serve(ScriptedEngine(deltas("ab"))).post(path, json=BODIES[path])
    assert COMMENT not in response.text


def test_an_error_after_a_comment_is_an_event_in_the_callers_words(serve):
    raised = InvalidRequest("too long", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="prompt")
    engine = ScriptedEngine(error=raised, pause_s=0.05)
    response = serve(engine, keep_alive_s=0.02).post(CHAT, json=BODIES[CHAT])
    assert response.status_code == 200
    *_, last, done, _ = response.text.split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["param"] == "messages"
    assert done == "data: [DONE]"


def test_lines_have_no_comments(serve):
    engine = ScriptedEngine(deltas("a"), pause_s=0.05)
    lines = serve(engine, keep_alive_s=0.02).post(STREAM, json=MESSAGES).text.splitlines()
    assert all(json.loads(line) for line in lines)


@EVENTS
def test_an_engine_that_stalls_ends_the_stream_and_is_freed(serve, path):
    engine = ScriptedEngine(deltas("ab", None), hangs=True)
    response = serve(engine, stall_timeout_s=0.1).post(path, json=BODIES[path])
    *_, last, done, _ = response.text.split("\n\n")
    assert done == "data: [DONE]"
    assert '"code":"engine_stalled"' in last
    assert engine.closed_early == 1


@pytest.mark.parametrize("path", [CHAT, SSE, STREAM, WHOLE])
def test_an_engine_that_says_nothing_at_all_is_a_status(serve, path):
    engine = ScriptedEngine(hangs=True)
    response = serve(engine, stall_timeout_s=0.1).post(path, json=BODIES.get(path, MESSAGES))
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "engine_stalled"
    assert response.json()["error"]["type"] == "server_error"
    assert engine.closed_early == 1
