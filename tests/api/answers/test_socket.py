"""/v1/chat/completions/ws: requests, cancels and errors on one socket."""

from __future__ import annotations

import asyncio

import pytest
from starlette.websockets import WebSocketDisconnect

from proxy.api.http.request_socket import MOST_REQUESTS
from proxy.domain.errors import EngineFailed, ErrorCode, InvalidRequest
from proxy.domain.output import FinishReason, TokenDelta
from tests.doubles.engine import ScriptedEngine, deltas

PATH = "/v1/chat/completions/ws"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
DONE = {"type": "done"}


class WaitingEngine(ScriptedEngine):
    """Gives one token at once, and the rest after `go`; counts those who wait."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def generate(self, request):
        try:
            yield TokenDelta((b"a",), prompt_tokens=1)
            await self.go.wait()
            yield TokenDelta((b"b",), finish=FinishReason.STOP)
        except BaseException:
            self.closed_early += 1
            raise


def received(socket, until: int = 1) -> list[dict]:
    """Messages up to so many that end a request."""
    messages = []
    while until:
        messages.append(socket.receive_json())
        until -= messages[-1].get("type") in ("done", "error")
    return messages


def text_of(messages: list[dict]) -> str:
    chunks = [message for message in messages if "choices" in message]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def error_of(message: dict) -> tuple[str, str | None]:
    assert message["type"] == "error"
    assert message["error"].keys() == {"message", "type", "param", "code"}
    return message["error"]["code"], message["error"]["param"]


def test_a_request_gets_the_chunks_of_a_stream_then_done(serve):
    with serve(ScriptedEngine(deltas("Hé!"))).websocket_connect(PATH) as socket:
        socket.send_json(BODY)
        *chunks, done = received(socket)
    assert done == DONE
    assert text_of(chunks) == "Hé!"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert all("request_id" not in chunk for chunk in chunks)


def test_requests_one_after_another_on_one_socket(serve):
    with serve(ScriptedEngine(deltas("ab"))).websocket_connect(PATH) as socket:
        for request_id in ("x", "x", "y"):
            socket.send_json({**BODY, "request_id": request_id})
            messages = received(socket)
            assert text_of(messages) == "ab"
            assert {message["request_id"] for message in messages} == {request_id}
        socket.send_bytes(b'{"model": "demo", "messages": [{"role": "user", "content": "hi"}]}')
        assert text_of(received(socket)) == "ab"


def test_several_at_once_by_request_id(serve):
    engine = WaitingEngine()
    client = serve(engine)
    with client.websocket_connect(PATH) as socket:
        for request_id in ("x", "y"):
            socket.send_json({**BODY, "request_id": request_id})
        begun = [socket.receive_json() for _ in range(4)]
        assert {message["request_id"] for message in begun} == {"x", "y"}
        client.portal.call(engine.go.set)
        messages = begun + received(socket, until=2)
    for request_id in ("x", "y"):
        own = [message for message in messages if message["request_id"] == request_id]
        assert text_of(own) == "ab"
        assert own[-1] == {**DONE, "request_id": request_id}


@pytest.mark.parametrize("cancel", [{"type": "cancel", "request_id": "x"}, {"type": "cancel"}])
def test_a_cancel_stops_the_engine_and_ends_with_done(serve, cancel):
    engine = WaitingEngine()
    with serve(engine).websocket_connect(PATH) as socket:
        socket.send_json({**BODY, "request_id": "x"})
        assert text_of([socket.receive_json(), socket.receive_json()]) == "a"
        socket.send_json(cancel)
        assert socket.receive_json() == {**DONE, "request_id": "x"}
        assert engine.closed_early == 1
        socket.send_json(cancel)  # has nothing to stop: says nothing
        socket.send_json({"type": "cancel", "request_id": 7})
        assert error_of(socket.receive_json()) == ("invalid_parameter", "request_id")


def test_a_cancel_stops_only_the_one_it_names(serve):
    engine = WaitingEngine()
    client = serve(engine)
    with client.websocket_connect(PATH) as socket:
        for request_id in ("x", "y"):
            socket.send_json({**BODY, "request_id": request_id})
        for _ in range(4):
            socket.receive_json()
        socket.send_json({"type": "cancel", "request_id": "x"})
        assert socket.receive_json() == {**DONE, "request_id": "x"}
        client.portal.call(engine.go.set)
        assert received(socket)[-1] == {**DONE, "request_id": "y"}


def test_closing_the_socket_stops_the_engine(serve):
    engine = WaitingEngine()
    with serve(engine).websocket_connect(PATH) as socket:
        for request_id in ("x", "y"):
            socket.send_json({**BODY, "request_id": request_id})
        for _ in range(4):
            socket.receive_json()
    assert engine.closed_early == 2


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        ("{", "invalid_json", None),
        ("[]", "invalid_parameter", None),
        ('{"type": "cancel", "x": 1}', "unsupported_parameter", "x"),
        ('{"type": "nope"}', "missing_parameter", "model"),
        ('{"model": "demo", "messages": []}', "invalid_messages", "messages"),
        (
            '{"model": "nope", "messages": [{"role": "user", "content": ""}]}',
            "model_not_found",
            "model",
        ),
        (
            '{"model": "demo", "messages": [{"role": "user", "content": ""}], "stream": false}',
            "invalid_parameter",
            "stream",
        ),
    ],
)
def test_errors_are_messages_and_leave_the_socket_open(serve, sent, code, param):
    with serve(ScriptedEngine(deltas("a"))).websocket_connect(PATH) as socket:
        socket.send_text(sent)
        assert error_of(socket.receive_json()) == (code, param)
        socket.send_json({**BODY, "stream": True, "stream_options": {"include_usage": True}})
        *chunks, done = received(socket)
        assert chunks[-1]["usage"]["prompt_tokens"] == 7
        assert done == DONE


def test_an_empty_message_is_no_json(serve):
    with serve(ScriptedEngine()).websocket_connect(PATH) as socket:
        socket.send_bytes(b"")
        assert error_of(socket.receive_json()) == ("invalid_json", None)


def test_a_refused_request_is_told_by_its_id(serve):
    with serve(ScriptedEngine()).websocket_connect(PATH) as socket:
        socket.send_json({**BODY, "request_id": "x", "nope": 1})
        message = socket.receive_json()
    assert error_of(message) == ("unsupported_parameter", "nope")
    assert message["request_id"] == "x"


@pytest.mark.parametrize(
    ("raised", "code", "param"),
    [
        (EngineFailed("it broke"), "internal_error", None),
        (RuntimeError("secret"), "internal_error", None),
        (
            InvalidRequest("long", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="prompt"),
            "context_length_exceeded",
            "messages",
        ),
    ],
)
def test_an_error_of_the_engine_ends_its_request_alone(serve, raised, code, param):
    engine = ScriptedEngine(deltas("a", None), error=raised)
    with serve(engine).websocket_connect(PATH) as socket:
        for _ in range(2):
            socket.send_json({**BODY, "request_id": "x"})
            *chunks, last = received(socket)
            assert text_of(chunks) == "a"
            assert error_of(last) == (code, param)
            assert "secret" not in last["error"]["message"]


@pytest.mark.parametrize("fields", [{}, {"request_id": "x"}])
def test_an_id_that_is_under_way_is_refused(serve, fields):
    with serve(WaitingEngine()).websocket_connect(PATH) as socket:
        for _ in range(2):
            socket.send_json({**BODY, **fields})
        messages = [socket.receive_json() for _ in range(3)]
    (error,) = [message for message in messages if message.get("type") == "error"]
    assert error_of(error) == ("duplicate_request_id", "request_id")


def test_a_socket_runs_so_many_at_once(serve):
    with serve(WaitingEngine()).websocket_connect(PATH) as socket:
        for at in range(MOST_REQUESTS + 1):
            socket.send_json({**BODY, "request_id": f"r{at}"})
        messages = [socket.receive_json() for _ in range(2 * MOST_REQUESTS + 1)]
    (error,) = [message for message in messages if message.get("type") == "error"]
    assert error["request_id"] == f"r{MOST_REQUESTS}"
    assert error_of(error) == ("rate_limit_exceeded", None)


def test_a_message_over_the_limit_is_refused(serve):
    client = serve(ScriptedEngine(deltas("a")), max_request_size_mb=0.001)
    with client.websocket_connect(PATH) as socket:
        socket.send_json({**BODY, "user": "x" * 2000})
        assert error_of(socket.receive_json()) == ("request_too_large", None)
        socket.send_json(BODY)
        assert received(socket)[-1] == DONE


@pytest.mark.parametrize(
    ("origins", "origin", "may"),
    [
        ((), "http://evil.example", False),
        ((), "http://testserver", True),
        (("https://app.example",), "https://app.example", True),
        (("*",), "http://evil.example", True),
    ],
)
def test_web_pages_of_other_origins_stay_out(serve, origins, origin, may):
    client = serve(ScriptedEngine(deltas("a")), cors_origins=origins)
    if may:
        with client.websocket_connect(PATH, headers={"Origin": origin}):
            return
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect(PATH, headers={"Origin": origin}),
    ):
        pass
