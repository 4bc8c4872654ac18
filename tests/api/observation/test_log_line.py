"""The log line of a request: which model, how many tokens, also when the client hangs up."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.fixtures.asgi_calls import Call, started
from tests.fixtures.stack import HANG_S

MESSAGES = [{"role": "user", "content": "hi"}]
CHAT = {"model": "demo", "messages": MESSAGES}
BEGUN = deltas("abc", finish=None)  # a prompt of 7 tokens, 4 of them cached
COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens")


@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        ("/tokenize", {"prompt": "hi"}, 3),
        ("/tokenize", {"messages": MESSAGES}, len("<user>hi\n<assistant>")),
        ("/detokenize", {"tokens": [104, 105]}, 2),
        ("/v1/chat/completions/render", CHAT, len("<user>hi\n<assistant>")),
    ],
)
def test_a_tokenizer_request_is_logged_with_its_tokens(serve, path, body, tokens):
    client = serve(ScriptedEngine())
    with capture_logs() as lines:
        assert client.post(path, json=body).status_code == 200
    (line,) = [one for one in lines if one["event"] == "request"]
    assert (line["log_level"], line["path"], line["status"]) == ("info", path, 200)
    assert (line["model"], line["prompt_tokens"]) == ("demo", tokens)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (["Root=1-ab;Sampled=1"], "Root=1-ab;Sampled=1"),
        (["first", "second"], "first"),
        (["x" * 128], "x" * 128),
        (["x" * 129], None),
        ([""], None),
        (["a b"], None),
        (["a\tb"], None),
        (["\u00e9"], None),
    ],
)
@pytest.mark.parametrize("status", [200, 404])
def test_the_callers_trace_is_in_the_line_and_in_the_answer(serve, sent, kept, status):
    client = serve(ScriptedEngine(deltas("a")))
    body = CHAT if status == 200 else {**CHAT, "model": "unknown"}
    headers = [("X-Request-Trace", value.encode("latin-1")) for value in sent]
    with capture_logs() as lines:
        response = client.post("/v1/chat/completions", json=body, headers=headers)
    (line,) = [one for one in lines if one["event"] == "request"]
    assert (response.status_code, response.headers.get("x-request-trace")) == (status, kept)
    assert line.get("request_trace") == kept


@pytest.mark.parametrize(
    ("fields", "without_effect"),
    [
        ({"temperature": 0, "top_p": 0.9}, ["top_p"]),
        ({"temperature": 0, "top_p": 0.9, "top_k": 40, "min_p": 0.1}, ["top_k", "top_p", "min_p"]),
        ({"top_k": 1, "temperature": 2}, ["temperature"]),
        ({"top_p": 0, "temperature": 1.0}, ["temperature"]),
        ({"nvext": {"greedy_sampling": True}, "top_k": 5}, ["top_k"]),
        ({"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0, "seed": 7}, None),
        ({"temperature": 0, "top_k": 1}, None),
        ({"top_k": 1}, None),
        ({"temperature": 0.7, "top_p": 0.9, "top_k": 40}, None),
    ],
)
def test_sampling_that_changes_nothing_is_marked(serve, fields, without_effect):
    assert marked(serve(ScriptedEngine(deltas("a"))), fields) == without_effect


def test_defaults_count_and_are_not_blamed(serve, tmp_path):
    (tmp_path / "none.yaml").write_text(
        "models: {demo: {weights: w, sampling: {temperature: 0, top_p: 0.5}}}"
    )
    client = serve(ScriptedEngine(deltas("a")))
    assert marked(client, {"min_p": 0.2}) == ["min_p"]
    assert marked(client, {}) is None
    assert marked(client, {"temperature": 1, "top_p": 0.9}) is None


def marked(client, fields: dict) -> list[str] | None:
    with capture_logs() as lines:
        assert client.post("/v1/chat/completions", json={**CHAT, **fields}).status_code == 200
    (line,) = [one for one in lines if one["event"] == "request"]
    return line.get("without_effect")


def test_a_socket_has_the_trace_of_its_handshake_in_each_line(serve):
    client = serve(ScriptedEngine(deltas("a")))
    headers = {"x-request-trace": "t-1"}
    with (
        capture_logs() as lines,
        client.websocket_connect("/v1/chat/completions/ws", headers=headers) as socket,
    ):
        for _ in range(2):
            socket.send_json(CHAT)
            while socket.receive_json() != {"type": "done"}:
                pass
    found = [one.get("request_trace") for one in lines if one["event"] == "request"]
    assert found == ["t-1", "t-1"]


async def line_of_an_abandoned(engine: ScriptedEngine, body: dict) -> dict:
    """A client sends the body, waits until the engine has sent all its tokens, and hangs up."""
    app = application(engine)
    with capture_logs() as lines:
        async with started(app):
            call = Call(app, "/v1/chat/completions", body, {})
            await asyncio.wait_for(engine.given.wait(), HANG_S)
            await call.disconnect()
        (line,) = [one for one in lines if one["event"] == "request"]
    return line


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_an_abandoned_request_is_logged_with_the_tokens_so_far(stream):
    engine = ScriptedEngine(BEGUN, hangs=True)
    line = await line_of_an_abandoned(engine, {**CHAT, "stream": stream})
    assert line["finish"] == "abandoned"
    assert [line[name] for name in COUNTS] == [7, 4, 3]


@pytest.mark.anyio
async def test_a_request_abandoned_before_its_first_token_has_no_counts():
    line = await line_of_an_abandoned(ScriptedEngine(hangs=True), CHAT)
    assert line["finish"] == "abandoned"
    assert not set(COUNTS) & line.keys()
