"""Every error has OpenAI's body and the right status, before the first token and after it."""

from __future__ import annotations

import asyncio

import pytest

from proxy.domain.errors import (
    DeadlineExceeded,
    EngineFailed,
    ErrorCode,
    InvalidRequest,
    ModelUnavailable,
)
from tests.api.formats import error_of
from tests.doubles.engine import FixedCatalog, ScriptedEngine, deltas

CHAT = "/v1/chat/completions"
GOOD = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "unknown_url"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("GET", "/v1/models/nope", 404, "model_not_found"),
    ],
)
def test_wrong_routes(idle, method, path, status, code):
    response = idle.request(method, path)
    assert response.status_code == status
    assert error_of(response)["code"] == code


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/health/live", 200),
        ("/health/ready", 200),
        ("/health", 200),
        ("/v1/models", 200),
        ("/v1/models/x", 404),
    ],
)
def test_head_is_answered_as_get(idle, path, status):
    asked, got = idle.head(path), idle.get(path)
    assert (asked.status_code, got.status_code) == (status, status)
    assert asked.headers["content-length"] == got.headers["content-length"]


def test_where_there_is_get_there_is_head(idle):
    response = idle.delete("/v1/models")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


def test_head_of_what_is_only_posted_is_405(idle):
    response = idle.head(CHAT)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


HERE = (
    "OpenAI's API is at /v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings and "
    "/v1/models."
)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/chat/completions", f"Did you mean {CHAT}?"),
        ("/v1/v1/chat/completions", f"Did you mean {CHAT}?"),
        ("/v1/chat/completion", f"Did you mean {CHAT}?"),
        ("/V1/Chat/Completions", f"Did you mean {CHAT}?"),
        ("/v1//models", "Did you mean /v1/models?"),
        ("/v1/tokenize", "Did you mean /tokenize?"),
        (
            "/v1/conversations",
            "This server does not have the Conversations API. The nearest route is /v1/responses.",
        ),
        ("/v1/v1/messages", "Did you mean /v1/messages?"),
        ("/api/chat", f"This server does not have Ollama's API. The nearest route is {CHAT}."),
        ("/v1/batches", f"This server does not have batches. The nearest route is {CHAT}."),
        ("/v1/embedding", "Did you mean /v1/embeddings?"),
        ("/v1/audio/speech", f"This server does not have speech or transcription. {HERE}"),
        ("/v1/images/generations", f"This server does not have images. {HERE}"),
        ("/v1/files/f1/content", f"This server does not have files. {HERE}"),
        ("/nothing/like/it", HERE),
        ("/chat/completion" * 100, HERE),
    ],
)
def test_an_unknown_url_names_the_feature_and_the_nearest_route(idle, path, hint):
    response = idle.post(path, json=GOOD)
    assert response.status_code == 404
    message = error_of(response)["message"]
    assert message.startswith("Invalid URL (POST /")
    assert message.endswith(f"). {hint}")
    assert len(message) < 400


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("raised", "status", "kind", "code", "param"),
    [
        (
            InvalidRequest("too long", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="prompt"),
            400,
            "invalid_request_error",
            "context_length_exceeded",
            "messages",
        ),
        (ModelUnavailable("away"), 503, "server_error", "model_unavailable", None),
        (EngineFailed("broke"), 500, "server_error", "internal_error", None),
        (DeadlineExceeded("late"), 504, "server_error", "deadline_exceeded", None),
        (RuntimeError("secret"), 500, "server_error", "internal_error", None),
    ],
)
def test_an_error_before_the_first_token_is_a_status(
    serve, raised, status, kind, code, param, stream
):
    client = serve(ScriptedEngine(error=raised))
    response = client.post(CHAT, json={**GOOD, "stream": stream})
    error = error_of(response)
    assert (response.status_code, error["type"], error["code"]) == (status, kind, code)
    assert error["param"] == param
    assert "secret" not in error["message"]
    assert (response.headers.get("x-should-retry") == "false") is (status == 504)


@pytest.mark.parametrize("raised", [EngineFailed("it broke"), RuntimeError("secret")])
def test_an_error_after_the_first_token_is_an_event_then_done(serve, raised):
    client = serve(ScriptedEngine(deltas("ab", None), error=raised))
    response = client.post(CHAT, json={**GOOD, "stream": True})
    assert response.status_code == 200
    *_, last, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert '"error":{' in last
    assert '"type":"server_error"' in last
    assert "secret" not in last


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {**GOOD, "max_tokens": 5}, "max_tokens"),
        (CHAT, {**GOOD, "max_completion_tokens": 5}, "max_completion_tokens"),
        ("/v1/completions", {"model": "demo", "prompt": "x"}, "max_tokens"),
    ],
)
def test_the_token_limit_is_named_as_the_caller_named_it(serve, path, body, param):
    raised = InvalidRequest("too many", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="max_tokens")
    response = serve(ScriptedEngine(error=raised)).post(path, json=body)
    assert error_of(response)["param"] == param


def test_while_triton_is_away_clients_are_told_to_come_back(serve):
    client = serve(ScriptedEngine(), FixedCatalog("Triton at 10.0.0.1:8001 is away"))
    for response in (
        client.post(CHAT, json=GOOD),
        client.get("/v1/models"),
        client.get("/health/ready"),
        client.get("/health"),
    ):
        assert response.status_code == 503
        assert error_of(response)["code"] == "model_unavailable"
        assert "is not ready" in error_of(response)["message"]
        assert "10.0.0.1" not in response.text
        assert response.headers["retry-after"] == "1"
        assert response.headers["retry-after-ms"] == "1000"
        assert response.headers["x-should-retry"] == "true"
    assert client.get("/health/live").status_code == 200


def test_a_client_that_leaves_while_its_body_is_read_is_no_error(serve, capsys):
    client = serve(ScriptedEngine())
    sent = []

    async def leave() -> None:
        messages = iter([{"type": "http.request", "body": b"{", "more_body": True}])

        async def receive():
            return next(messages, {"type": "http.disconnect"})

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [], "query_string": b""}
        await client.app(scope, receive, send)

    asyncio.run(leave())
    assert not sent
    assert "internal error" not in capsys.readouterr().out
