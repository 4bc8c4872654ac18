"""What Triton and our own faults report goes to the log, not to callers."""

from __future__ import annotations

import json
import re

import grpc
import pytest

from proxy.triton.errors import error_of_message, error_of_status, malformed
from tests.doubles.engine import FixedCatalog, ScriptedEngine, deltas

CHAT, SOCKET = "/v1/chat/completions", "/v1/chat/completions/ws"
GOOD = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
NASTY = (
    "in ensemble 'demo', Failed to process the request: unable to create shared memory region "
    "'triton_python_backend_shm_region_7', /dev/shm/abc: Traceback (most recent call last): File "
    '"/opt/tritonserver/backends/python/model.py", line 5, in execute; '
    "ipv4:10.1.2.3:8001: connection refused; unix:/run/triton.sock; [fe80::1]:8001"
)
SIGNS = re.compile(
    r"shm|traceback|/(opt|dev|run|models|home)\b|\.py\b|\d+\.\d+\.\d+\.\d+|fe80::|:8001|line \d",
    re.IGNORECASE,
)
ERRORS = {
    "in a stream": error_of_message(NASTY),
    "a model that is away": error_of_message(f"{NASTY} demo is not ready"),
    "no refusal of ours": error_of_message('{"code": "x", "param": "y", "message": "/opt/a.py"}'),
    "malformed": malformed(NASTY),
    "not ours": RuntimeError(NASTY),
    **{code.name: error_of_status(code, NASTY) for code in grpc.StatusCode if code.value[0]},
}


def said(response) -> str:
    return response.text + str(response.headers)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, GOOD),
        (CHAT, {**GOOD, "stream": True}),
        ("/v1/completions", {"model": "demo", "prompt": "x", "stream": True}),
        ("/chat/json", {"messages": GOOD["messages"]}),
        ("/chat/stream", {"messages": GOOD["messages"]}),
        ("/chat/sse", {"messages": GOOD["messages"]}),
    ],
)
@pytest.mark.parametrize("has_begun", [False, True])
def test_no_answer_has_what_triton_reports(serve, path, body, has_begun):
    engine = ScriptedEngine(deltas("ab", None) if has_begun else [])
    client = serve(engine, max_resends=0)
    for name, engine.error in ERRORS.items():
        response = client.post(path, json=body)
        assert "error" in response.text, name
        assert not SIGNS.search(said(response)), (name, response.text)


def test_no_error_after_all_resends_has_it(serve):
    engine = ScriptedEngine(error=error_of_status(grpc.StatusCode.UNAVAILABLE, NASTY))
    response = serve(engine, max_resends=1).post(CHAT, json=GOOD)
    assert len(engine.requests) == 2
    assert not SIGNS.search(said(response)), response.text


def test_no_message_of_a_socket_has_it_either(serve):
    engine = ScriptedEngine(deltas("ab", None))
    with serve(engine, max_resends=0).websocket_connect(SOCKET) as socket:
        for name, engine.error in ERRORS.items():
            socket.send_json(GOOD)
            while (message := socket.receive_json()).get("type") != "error":
                pass
            assert not SIGNS.search(json.dumps(message)), (name, message)


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/v1/models", CHAT])
def test_what_is_wrong_with_triton_is_a_category(serve, path):
    client = serve(ScriptedEngine(), FixedCatalog(NASTY))
    response = client.post(path, json=GOOD) if path == CHAT else client.get(path)
    assert response.status_code == 503
    assert not SIGNS.search(said(response)), response.text


def test_the_log_has_the_detail_once_under_the_id_that_the_caller_got(serve, capsys):
    client = serve(ScriptedEngine(error=error_of_message(NASTY)))
    response = client.post(CHAT, json=GOOD)
    request_id = response.headers["x-request-id"]
    assert request_id in response.json()["error"]["message"]
    logged = capsys.readouterr().out
    assert logged.count("triton_python_backend_shm_region_7") == 1
    [line] = [line for line in logged.splitlines() if "shm_region_7" in line]
    assert request_id in line


def test_a_path_is_echoed_and_logged_in_short(serve, capsys):
    client = serve(ScriptedEngine())
    response = client.get("/" + "x" * 60_000)
    assert response.status_code == 404
    assert len(response.text) < 600
    assert "x" * 300 not in capsys.readouterr().out
