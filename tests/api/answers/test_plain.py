"""/chat/json, /chat/stream and /chat/sse: one request, three forms of its answer."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from functools import partial

import pytest
import uvloop

from proxy.domain.errors import EngineFailed, ErrorCode, InvalidRequest
from proxy.domain.output import FinishReason
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.own_server import served
from tests.fixtures.stack import HANG_S, ROOT

JSON, STREAM, SSE = "/chat/json", "/chat/stream", "/chat/sse"
BODY = {"messages": [{"role": "user", "content": "hi"}]}
ALL = pytest.mark.parametrize("path", [JSON, STREAM, SSE])


def message(content: str) -> dict:
    return {"role": "assistant", "content": content}


def lines_of(response) -> list[dict]:
    assert response.headers["content-type"] == "application/json"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def events_of(response) -> list[str]:
    """The events before [DONE]."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return events


def test_json_is_the_whole_message(serve):
    response = serve(ScriptedEngine(deltas("Hé!"))).post(JSON, json=BODY)
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.pop("id").startswith("cmpl-")
    assert body.pop("created") > 1_700_000_000
    assert body == {"model": "demo", "message": message("Hé!"), "done": True}


def test_stream_is_a_line_a_chunk_and_the_last_is_done(serve):
    lines = lines_of(serve(ScriptedEngine(deltas("ab"))).post(STREAM, json=BODY))
    assert lines == [
        {"message": message("a"), "done": False, "index": 0},
        {"message": message("b"), "done": False, "index": 1},
        {"message": message(""), "done": True, "index": 2},
    ]


def test_sse_is_an_event_a_chunk_and_then_done(serve):
    events = events_of(serve(ScriptedEngine(deltas("ab"))).post(SSE, json=BODY))
    assert [json.loads(event.removeprefix("data: ")) for event in events] == [
        {"message": message("a"), "done": False, "index": 0},
        {"message": message("b"), "done": False, "index": 1},
    ]


@ALL
def test_what_the_caller_says_reaches_the_engine(serve, path):
    engine = ScriptedEngine(deltas("a"))
    serve(engine).post(path, json={**BODY, "model": "demo", "temperature": 0.5})
    (seen,) = engine.requests
    assert (seen.text, seen.sampling.temperature) == ("<user>hi\n<assistant>", 0.5)


@ALL
@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({**BODY, "max_tokens": 5}, 400, "unsupported_parameter", "max_tokens"),
        ({}, 400, "missing_parameter", "messages"),
        ({**BODY, "model": "nope"}, 404, "model_not_found", "model"),
    ],
)
def test_a_bad_request_is_a_status_with_the_usual_body(idle, path, body, status, code, param):
    response = idle.post(path, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)


@ALL
def test_an_error_before_the_first_token_is_a_status(serve, path):
    raised = InvalidRequest("too long", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="prompt")
    response = serve(ScriptedEngine(error=raised)).post(path, json=BODY)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages"


@pytest.mark.parametrize("raised", [EngineFailed("it broke"), RuntimeError("secret")])
def test_an_error_in_a_stream_is_its_last_line(serve, raised):
    client = serve(ScriptedEngine(deltas("a", None), error=raised))
    first, last = lines_of(client.post(STREAM, json=BODY))
    assert first["done"] is False
    assert last.keys() == {"error", "done"}
    assert last["done"] is True
    assert last["error"]["type"] == "server_error"
    assert "secret" not in last["error"]["message"]


def test_an_error_in_sse_is_an_event_of_that_name(serve):
    client = serve(ScriptedEngine(deltas("a", None), error=EngineFailed("it broke")))
    response = client.post(SSE, json=BODY)
    assert response.status_code == 200
    _, last = events_of(response)
    name, data = last.split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {
        "message": "it broke",
        "type": "server_error",
        "code": "internal_error",
    }


TOO_LONG = InvalidRequest("too long", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param=None)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not on this machine")
@pytest.mark.parametrize(
    ("text", "error", "failure"),
    [
        ("Hé!", None, None),
        ("", TOO_LONG, "too long"),
        ("Hé!", EngineFailed("it broke"), "it broke"),
    ],
)
def test_the_documents_program_for_browsers_reads_text_and_errors(
    serve, tmp_path, text, error, failure
):
    program = re.search(r"```js\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL)[1]
    engine = ScriptedEngine(deltas(text, None if error else FinishReason.STOP), error=error)
    engine.pause_s = 0.01 if text else 0
    app = serve(engine, keep_alive_s=0.005).app  # there are comments before the text

    async def printed() -> subprocess.CompletedProcess[str]:
        async with served(app) as (host, port):
            path = tmp_path / "chat.mjs"
            path.write_text(program.replace("http://127.0.0.1:9000", f"http://{host}:{port}"))
            run = partial(subprocess.run, capture_output=True, text=True, timeout=HANG_S)
            return await asyncio.to_thread(run, ["node", str(path)])

    ended = uvloop.run(printed())
    assert ended.stdout.replace("\n", "") == text
    assert ended.returncode == (failure is not None), ended.stderr
    assert failure is None or f"Error: {failure}" in ended.stderr


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        (path, {"temperature": given}, f"temperature must be between 0.0 and 2.0, got {given}")
        for path in ("/chat/json", "/v1/chat/completions")
        for given in (3.5, -1)
    ]
    + [
        ("/v1/chat/completions", {"top_p": 1.5}, "top_p must be between 0.0 and 1.0, got 1.5"),
        (
            "/v1/chat/completions",
            {"top_logprobs": 21, "logprobs": True},
            "between 0 and 20, got 21",
        ),
        ("/v1/chat/completions", {"presence_penalty": 3}, "between -2.0 and 2.0, got 3"),
        ("/v1/chat/completions", {"n": 0}, "Invalid value for 'n': "),
    ],
)
def test_a_number_out_of_its_range_is_answered_with_both_bounds(serve, path, fields, said):
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], **fields}
    refused = serve(ScriptedEngine(deltas("a"))).post(path, json=body)
    assert refused.status_code == 400
    assert said in refused.json()["error"]["message"]
