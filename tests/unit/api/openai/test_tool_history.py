"""Tool calls in a chat's history: each has its answer, in OpenAI's order."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import ListOf
from proxy.api.openai.message_bodies import MessageBody, check_tool_history

BODIES = TypeAdapter(ListOf[MessageBody])
USER = {"role": "user", "content": "hi"}
TEXT = {"role": "assistant", "content": "hello"}


def calls(*ids: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    made = [{"id": one, "type": "function", "function": function} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": "1", "tool_call_id": call_id}


def check(*messages: dict[str, Any], **how: bool) -> None:
    check_tool_history(BODIES.validate_python(list(messages)), **how)


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, TEXT, USER],
        [USER, calls("a"), result("a")],
        [USER, calls("a", "b"), result("b"), result("a"), USER],
        [USER, calls("a"), result("a"), calls("a"), result("a"), TEXT, USER],
        [calls("a"), result("a"), USER, calls("a", "b"), result("a"), result("b")],
        [USER, {**calls(), "content": "no calls"}, USER],
    ],
)
def test_a_history_whose_calls_all_have_answers_passes(messages):
    check(*messages)


@pytest.mark.parametrize(
    ("messages", "path", "reason"),
    [
        ([USER, result("a")], "messages[1].role", "must be a response"),
        ([result("a"), USER], "messages[0].role", "must be a response"),
        ([USER, TEXT, result("a")], "messages[2].role", "must be a response"),
        ([USER, calls(), result("a")], "messages[2].role", "must be a response"),
        (
            [USER, calls("a"), result("a"), USER, result("a")],
            "messages[4].role",
            "must be a response",
        ),
        ([USER, calls("a"), result("b")], "messages[2].tool_call_id", "'b' not found"),
        (
            [USER, calls("a"), result("a"), calls("b"), result("a")],
            "messages[4].tool_call_id",
            "'a' not found",
        ),
        (
            [USER, calls("a", "b"), result("a"), result("a")],
            "messages[3].tool_call_id",
            r"Duplicate.*'a', in messages\[2\] and messages\[3\]",
        ),
        ([USER, calls("a", "a"), result("a")], "messages[1].tool_calls[1].id", "Duplicate.*'a'"),
        ([USER, calls("a")], "messages[1].tool_calls[0].id", "did not have.*: a$"),
        ([USER, calls("a"), USER], "messages[1].tool_calls[0].id", "did not have.*: a$"),
        ([USER, calls("a"), TEXT], "messages[1].tool_calls[0].id", "did not have.*: a$"),
        ([USER, calls("a"), calls("a")], "messages[1].tool_calls[0].id", "did not have.*: a$"),
        (
            [USER, calls("a", "b", "c"), result("b"), USER],
            "messages[1].tool_calls[0].id",
            "did not have.*: a, c$",
        ),
        (
            [USER, calls("a", "b"), result("a"), USER, result("b")],
            "messages[1].tool_calls[1].id",
            "did not have.*: b$",
        ),
    ],
)
def test_a_history_with_a_gap_is_refused_by_its_path(messages, path, reason):
    with pytest.raises(FieldError, match=reason) as caught:
        check(*messages)
    assert (caught.value.param, caught.value.code) == (path, "invalid_messages")


def test_a_history_that_nobody_answers_yet_may_end_with_calls():
    check(USER, calls("a", "b"), result("a"), may_end_open=True)
    with pytest.raises(FieldError, match="did not have"):
        check(USER, calls("a"), USER, may_end_open=True)


def test_what_a_caller_wrote_is_cut_in_the_message():
    ids = [f"{number:03}" + "x" * 500 for number in range(100)]
    with pytest.raises(FieldError) as caught:
        check(USER, calls(*ids))
    assert len(str(caught.value)) < 500
    with pytest.raises(FieldError) as caught:
        check(USER, calls("a"), result("b" * 5_000))
    assert len(str(caught.value)) < 500
