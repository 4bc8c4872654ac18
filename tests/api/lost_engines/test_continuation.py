"""Streams that lose their engine after their first token: clients notice nothing but a pause."""

from __future__ import annotations

import json
import re

import pytest
from structlog.testing import capture_logs

from proxy.domain.errors import EngineFailed
from proxy.domain.output import FinishReason
from tests.api.formats import named
from tests.api.tools.test_tools import CALL, CATALOG, TOOLS
from tests.doubles.dying_engine import DyingEngine
from tests.doubles.engine import CAPABILITIES, FixedCatalog

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"model": "demo", "prompt": "Say it"}
OWN = re.compile(r'"(id|created)":("[^"]*"|\d+)')  # of each answer
NOTES = re.compile(r"^: continued.*\n\n", re.MULTILINE)
NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}

CASES = {
    "plain": (CHAT, HI, ["Once upon"]),
    "characters": (CHAT, HI, ["é€😀e\u0301"]),
    "stop": (TEXT, {**PROMPT, "stop": ["STOP", "ON"]}, ["go STO on STOP no"]),
    "stop included": (
        TEXT,
        {**PROMPT, "stop": ["end"], "include_stop_str_in_output": True},
        ["a eend"],
    ),
    "ids": (CHAT, {**HI, "return_token_ids": True}, ["ids"]),
    "log probs": (CHAT, {**HI, "logprobs": True, "top_logprobs": 2, "stop": ["x"]}, ["é log x"]),
    "text log probs": (TEXT, {**PROMPT, "logprobs": 2}, ["é log"]),
    "echo": (TEXT, {**PROMPT, "echo": True}, ["answer"]),
    "echo with log probs": (TEXT, {**PROMPT, "echo": True, "logprobs": 1}, ["it"]),
    "usage": (
        CHAT,
        {**HI, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        ["used"],
    ),
    "tools": (CHAT, {**HI, "tools": TOOLS}, [f"Hm {CALL}"]),
    "reasoning": (CHAT, HI, ["<think>I th\u00efnk</think>so"]),
    "reasoning and tools": (CHAT, {**HI, "tools": TOOLS}, [f"<think>f</think>{CALL}"]),
    "schema": (CHAT, {**HI, **named(NUMBER, strict=True)}, ['{"n": 12}']),
    "no text": (CHAT, HI, [""]),
}  # fmt: skip


def plain(text: str) -> str:
    """Without what two equal answers differ in."""
    return NOTES.sub("", OWN.sub(r'"\1":0', text))


def served(serve, *texts: str, **fields):
    engine = DyingEngine(*texts, **fields)
    return serve(engine, catalog=CATALOG), engine


@pytest.mark.parametrize("path, body, texts", CASES.values(), ids=CASES)  # noqa: PT006
@pytest.mark.parametrize("at_once", [1, 3])
def test_a_stream_that_is_cut_anywhere_is_byte_for_byte_the_whole_one(
    serve, path, body, texts, at_once
):
    client, engine = served(serve, *texts, at_once=at_once)
    body = {**body, "stream": True}
    undisturbed = client.post(path, json=body).text
    deltas = len(engine._deltas(engine.requests[0]))
    assert "continued" not in undisturbed
    all_parts = set()
    for cut in range(1, deltas):
        engine.requests.clear()
        engine.cut = cut
        text = client.post(path, json=body).text
        assert plain(text) == plain(undisturbed), cut
        parts = len(engine.requests)
        all_parts.add(parts)
        assert text.count(": continued 1 (endpoint lost)\n\n") == parts - 1, text
    assert 2 in all_parts or deltas == 1
    assert all_parts <= {1, 2}, "one that a stop string ended before it was cut is not continued"


@pytest.mark.parametrize("path, body, texts", CASES.values(), ids=CASES)  # noqa: PT006
def test_a_whole_answer_is_the_same_too(serve, path, body, texts):
    body = {name: value for name, value in body.items() if name != "stream_options"}
    client, engine = served(serve, *texts)
    undisturbed = client.post(path, json=body)
    assert "x-continued" not in undisturbed.headers
    for cut in range(1, len(engine._deltas(engine.requests[0]))):
        engine.requests.clear()
        engine.cut = cut
        answer = client.post(path, json=body)
        assert plain(answer.text) == plain(undisturbed.text)
        continued = len(engine.requests) - 1
        assert answer.headers.get("x-continued") == (str(continued) if continued else None)


def test_an_answer_whose_reasoning_was_ended_is_continued_on_both_sides_of_that(serve):
    client, engine = served(serve, "<think>I ponder</think>so it is")
    body = {**HI, "thinking_token_budget": 4, "stream": True}
    undisturbed = client.post(CHAT, json=body).text
    assert [len(one.generated) for one in engine.requests] == [0, 0]
    for cut in range(1, 14):
        engine.requests.clear()
        engine.cut = cut
        assert plain(client.post(CHAT, json=body).text) == plain(undisturbed), cut
        more = [one for one in engine.requests if "-more" in one.id]
        assert [one.id.partition("-more")[2] for one in more] == ["", "-continued1"]
        assert [len(one.generated) for one in more] == [0, cut]


@pytest.mark.parametrize(
    "fields", [{"n": 3}, {"n": 2, "best_of": 3}, {"n": 3, "logprobs": 1, "echo": True}]
)
def test_all_choices_are_continued(serve, fields):
    client, engine = served(serve, "first", "second one", "third")
    undisturbed = client.post(TEXT, json={**PROMPT, **fields})
    for cut in (1, 3, 5):
        engine.cut = cut
        answer = client.post(TEXT, json={**PROMPT, **fields})
        assert plain(answer.text) == plain(undisturbed.text)
        assert answer.headers["x-continued"] == "3"


def test_a_long_answer_that_is_lost_again_and_again_comes_whole(serve):
    text = "It goes on and on. " * 30
    client, _ = served(serve, text, cut=10, cuts_all=True)
    with capture_logs() as lines:
        answer = client.post(CHAT, json=HI)
    assert answer.json()["choices"][0]["message"]["content"] == text
    assert answer.json()["usage"]["completion_tokens"] == len(text) + 1
    assert int(answer.headers["x-continued"]) == len(text) // 10
    (line,) = [one for one in lines if one["event"] == "request"]
    assert line["continued"] == len(text) // 10
    metrics = client.get("/metrics").text
    count = f"{len(text) // 10}.0"
    labels = 'cause="lost",model="demo",result="continued"'
    assert f"proxy_streams_continued_total{{{labels}}} {count}" in metrics
    assert f'proxy_continuation_pause_seconds_count{{model="demo"}} {count}' in metrics


def failed(client, **body) -> dict:
    """The error that ends a stream."""
    *_, error, done, _ = client.post(CHAT, json={**HI, **body, "stream": True}).text.split("\n\n")
    assert done == "data: [DONE]"
    return json.loads(error.removeprefix("data: "))["error"]


def test_a_stream_that_makes_no_progress_is_given_up(serve):
    client, engine = served(serve, "never", cut=1, cuts_all=True)
    error = failed(client)
    assert error["code"] == "model_unavailable"
    assert "continued 2 times already" in error["message"]
    assert len(engine.requests) == 3
    labels = 'cause="lost",model="demo",result="failed"'
    assert f"proxy_streams_continued_total{{{labels}}} 1.0" in client.get("/metrics").text


def test_the_setting_bounds_all_losses_of_a_stream(serve):
    engine = DyingEngine("It goes on and on. " * 9, cut=10, cuts_all=True)
    error = failed(serve(engine, max_continuations=4))
    assert "continued 4 times already" in error["message"]
    assert len(engine.requests) == 5


def test_nothing_is_continued_where_the_setting_says_so(serve):
    engine = DyingEngine("never", cut=1)
    assert failed(serve(engine, max_continuations=0))["message"].startswith("away")
    assert not engine.requests[0].keeps_ids
    assert len(engine.requests) == 1


def test_a_format_without_comments_says_nothing_of_it(serve):
    client, engine = served(serve, "Once upon", cut=3)
    body = {"messages": HI["messages"]}
    *lines, _ = client.post("/chat/stream", json=body).text.split("\n")
    assert len(engine.requests) == 2
    assert all(json.loads(line) for line in lines)


def test_an_error_of_the_engine_itself_ends_the_stream(serve):
    engine = DyingEngine("never", cut=2, death=lambda: EngineFailed("it broke"))
    assert failed(serve(engine))["message"].startswith("it broke")
    assert len(engine.requests) == 1


WITHOUT = FixedCatalog(capabilities=CAPABILITIES - {"resume"})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"seed": 5}, "random numbers of a seed"),
        ({"presence_penalty": 1}, "penalties"),
        ({"bad_words": ["no"]}, "bad word"),
    ],
)
def test_what_an_engine_cannot_restore_ends_the_stream_with_the_reason(serve, fields, reason):
    engine = DyingEngine("never", cut=2)
    error = failed(serve(engine, catalog=WITHOUT), **fields)
    assert error["code"] == "model_unavailable"
    assert reason in error["message"]
    assert len(engine.requests) == 1


@pytest.mark.parametrize("fields", [named(NUMBER, strict=True), {"truncate_prompt_tokens": 3}])
def test_what_would_be_wrong_is_continued_by_no_setting(serve, fields):
    engine = DyingEngine('{"n": 1}', cut=2)
    client = serve(engine, catalog=WITHOUT, inexact_continuation="continue")
    assert "cannot be continued" in failed(client, **fields)["message"]


def test_the_operator_may_allow_what_is_not_exact(serve):
    engine = DyingEngine("abcdef", cut=2)
    client = serve(engine, catalog=WITHOUT, inexact_continuation="continue")
    client.post(CHAT, json={**HI, "seed": 5, "max_tokens": 6, "min_tokens": 3})
    first, second = engine.requests
    assert (second.text, second.token_ids) == (first.text, (1000, 1001))
    assert (second.max_tokens, second.sampling.min_tokens) == (4, 1)
    assert second.generated == ()


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"top_k": 1, "seed": 3}, {}])
def test_an_engine_without_resume_gets_prompt_and_ids_where_that_is_exact(serve, fields):
    engine = DyingEngine("abcdef", cut=2)
    client = serve(engine, catalog=WITHOUT)
    assert client.post(CHAT, json={**HI, **fields}).status_code == 200
    first, second = engine.requests
    assert (second.text, second.token_ids) == (first.text, (1000, 1001))


def test_an_answer_of_which_only_the_end_was_lost_needs_no_engine(serve):
    engine = DyingEngine("abcdef", cut=4, finish=FinishReason.LENGTH)
    client = serve(engine, catalog=WITHOUT)
    answer = client.post(CHAT, json={**HI, "max_tokens": 4}).json()
    assert answer["choices"][0]["message"]["content"] == "abcd"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(engine.requests) == 1
