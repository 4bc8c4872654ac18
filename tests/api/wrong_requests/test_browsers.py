"""What a web page of somebody else may not do with this server."""

from __future__ import annotations

import pytest
from starlette.websockets import WebSocketDisconnect

from tests.api.formats import error_of
from tests.doubles.engine import ScriptedEngine, deltas

CHAT, SOCKET = "/v1/chat/completions", "/v1/chat/completions/ws"
GOOD = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
PAGE = {"origin": "https://evil.example"}


@pytest.mark.parametrize("path", [CHAT, "/v1/chat/completions/render", "/chat/json", "/tokenize"])
@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
def test_a_form_of_a_web_page_is_refused(serve, path, content_type):
    """A browser sends these to any server without asking it first."""
    client = serve(ScriptedEngine(deltas("a")))
    response = client.post(path, content=b"{}", headers={**PAGE, "content-type": content_type})
    assert response.status_code == 415
    assert error_of(response)["code"] == "unsupported_content_type"


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"],
)
def test_json_of_a_web_page_is_taken(serve, content_type):
    client = serve(ScriptedEngine(deltas("a")))
    content = b'{"model": "demo", "messages": [{"role": "user", "content": "hi"}]}'
    response = client.post(CHAT, content=content, headers={**PAGE, "content-type": content_type})
    assert response.status_code == 200


def test_a_program_may_leave_the_content_type_out(serve):
    content = b'{"model": "demo", "messages": [{"role": "user", "content": "hi"}]}'
    assert serve(ScriptedEngine(deltas("a"))).post(CHAT, content=content).status_code == 200


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/metrics", "/health", "/nope"])
def test_a_domain_that_is_rebound_to_this_server_is_refused(idle, path):
    response = idle.get(path, headers={"host": "evil.example:9000"})
    assert response.status_code == 421
    assert error_of(response)["code"] == "unknown_host"
    assert response.headers["x-request-id"]


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "[evil.example]:1"])
def test_a_rebound_domain_gets_no_socket(idle, host):
    headers = {"host": host, "origin": f"http://{host}"}
    with pytest.raises(WebSocketDisconnect), idle.websocket_connect(SOCKET, headers=headers):
        pass


def test_any_host_is_not_any_origin(serve):
    """With every Host allowed, a rebound domain would be an origin of this server's own."""
    client = serve(ScriptedEngine(deltas("a")), allowed_hosts=("*",))
    evil = {"host": "evil.example", "origin": "http://evil.example"}
    assert client.get("/v1/models", headers=evil).status_code == 200
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(SOCKET, headers=evil):
        pass


def test_a_named_host_is_served_and_its_pages_get_a_socket(serve):
    client = serve(ScriptedEngine(deltas("a")), allowed_hosts=("api.example.com",))
    page = {"host": "API.example.com:8443", "origin": "https://api.example.com:8443"}
    assert client.get("/v1/models", headers=page).status_code == 200
    with client.websocket_connect(SOCKET, headers=page) as socket:
        socket.send_json(GOOD)
        assert "choices" in socket.receive_json()
