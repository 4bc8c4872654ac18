"""The nginx example: its limits; and on Debian's nginx which requests go to another proxy, which
never do, and what callers cannot reach or claim.
"""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import crossplane
import httpx
import pytest

from proxy.api.openai import chat_socket
from proxy.api.responses import response_socket
from proxy.settings import Settings
from tests.fixtures import nginx
from tests.fixtures.application import application
from tests.fixtures.running_app import RunningApp
from tests.fixtures.stack import HANG_S, free_port

REQUESTS = 20
BODY = {"model": "demo", "messages": [{"role": "user", "content": "Hello!" * 30_000}]}


class Proxy(http.server.ThreadingHTTPServer):
    """`behaves` answers a request, whose body was read; counts them."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, behaves: Callable[[Handler], None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaves = behaves
        self.asked = 0
        self.seen: list[dict[str, str]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_GET(self) -> None:
        self.server.seen.append(dict(self.headers.items()))
        self.answer(200, b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.asked += 1
        self.server.behaves(self)

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def answers(handler: Handler) -> None:
    handler.answer(200, b"{}")


def refuses(handler: Handler) -> None:
    handler.answer(503, b'{"error": "stopping"}', Retry_After="7", Connection="close")
    handler.close_connection = True


def loses(handler: Handler) -> None:
    handler.close_connection = True


@pytest.fixture
def place(tmp_path) -> Iterator[Callable[..., tuple[nginx.Front, list[Proxy]]]]:
    """place(behaviour, …): nginx before such proxies; None is one that does not listen."""
    if nginx.NGINX is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    with contextlib.ExitStack() as ends:

        def run(*behaviours: Callable[[Handler], None] | None) -> tuple[nginx.Front, list[Proxy]]:
            proxies = [Proxy(each) for each in behaviours if each is not None]
            for proxy in proxies:
                ends.callback(proxy.server_close)
                ends.callback(proxy.shutdown)
                threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
            ports = [proxy.server_port for proxy in proxies]
            ports += [free_port() for each in behaviours if each is None]
            return ends.enter_context(nginx.running(ports, tmp_path)), proxies

        yield run


def ask(front: nginx.Front) -> httpx.Response:
    return httpx.post(f"{front.url}/v1/chat/completions", json=BODY, verify=front.trust, timeout=60)


def test_a_proxy_that_does_not_listen_is_passed_over(place):
    front, _ = place(answers, None)
    assert [ask(front).status_code for _ in range(REQUESTS)] == [200] * REQUESTS


def test_a_proxy_that_refuses_is_passed_over(place):
    front, (answering, refusing) = place(answers, refuses)
    assert [ask(front).status_code for _ in range(REQUESTS)] == [200] * REQUESTS
    assert answering.asked == REQUESTS
    assert refusing.asked > 0


def test_a_request_that_was_sent_and_lost_is_not_sent_again(place):
    front, (answering, losing) = place(answers, loses)
    found = [ask(front) for _ in range(REQUESTS)]
    lost = [one for one in found if one.status_code == 502]
    assert len(lost) == losing.asked > 0
    assert len(found) - len(lost) == answering.asked
    assert {one.json()["error"]["code"] for one in lost} == {"bad_gateway"}


def test_where_all_refuse_the_refusal_reaches_the_client(place):
    front, _ = place(refuses, refuses)
    refused = ask(front)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "7"
    assert refused.json() == {"error": "stopping"}


def test_where_none_listens_the_error_is_one_that_clients_can_read(place):
    front, _ = place(None, None)
    for _ in range(REQUESTS):
        refused = ask(front)
        assert refused.status_code == 502
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["type"] == "server_error"


def test_a_stream_passes_as_it_comes(place):
    """The second event is sent when the client has the first."""
    has_first = threading.Event()

    def streams(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        handler.wfile.write(b"data: 1\n\n")
        if has_first.wait(30):
            handler.wfile.write(b"data: 2\n\n")

    front, _ = place(streams)
    url = f"{front.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=BODY, verify=front.trust, timeout=60) as response:
        events = response.iter_lines()
        assert next(events) == "data: 1"
        has_first.set()
        assert [line for line in events if line] == ["data: 2"]


METRICS = (
    *("/metrics", "/metrics/", "/metrics//", "/metrics?", "/metrics?x"),
    *("/metrics/?x", "/metrics#x"),
    *("/metrics%2f", "/metrics%2F", "/metrics%2f/", "/metrics/%2f", "/metrics%2f?x", "/metrics%3f"),
    *("/%6detrics", "/metric%73", "/%6d%65%74%72%69%63%73", "/%6detrics%2f", "/metrics/."),
    *("//metrics", "///metrics//", "/./metrics", "/v1/../metrics", "/v1/%2e%2e/metrics"),
    *("/v1/..%2fmetrics/", "/metrics/../metrics/", "/%2fmetrics", "/metrics;x", "/metrics%20"),
    *("/metrics%00", "/metrics%0a", "/METRICS", "http://localhost/metrics/", "/%256detrics"),
)


def raw(front: nginx.Front, target: str) -> bytes:
    """The answer to a request whose target no client library has normalized."""
    port = urlsplit(front.url).port
    with (
        socket.create_connection(("localhost", port), timeout=HANG_S) as plain,
        front.trust.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@nginx.needs_nginx
def test_no_spelling_of_the_metrics_reaches_them(tmp_path):
    """The proxy itself gives them to everybody, so that only nginx stands before them."""
    proxy = RunningApp(application(public_metrics=True))
    with proxy, nginx.running([urlsplit(proxy.url).port], tmp_path) as front:
        assert b"proxy_http_responses" in httpx.get(f"{proxy.url}/metrics/").content
        assert raw(front, "/version").startswith(b"HTTP/1.1 200")
        got = {target: raw(front, target) for target in METRICS}  # fewer than `burst`
    refused = (b"HTTP/1.1 400", b"HTTP/1.1 404")
    assert [target for target, answer in got.items() if not answer.startswith(refused)] == []


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions/ws"])
def test_a_caller_chooses_neither_its_address_nor_its_name(place, path):
    front, (proxy,) = place(answers)
    claims = {
        "X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "gopher", "X-Client-Name": "root"
    }  # fmt: skip
    assert httpx.get(f"{front.url}{path}", headers=claims, verify=front.trust).status_code == 200
    (seen,) = proxy.seen
    assert (seen["X-Forwarded-For"], seen["X-Forwarded-Proto"]) == ("127.0.0.1", "https")
    assert "X-Client-Name" not in seen


def parsed() -> list[dict[str, Any]]:
    """Strict: an unknown directive, a wrong place or a wrong number of words is an error. Each line
    of a map is its own.
    """
    options = {"single": True, "comments": False}
    found = crossplane.parse(str(nginx.CONFIG), **options)["config"][0]["parsed"]
    http = block(found, "http")
    maps = [each["block"] for each in http if each["directive"] == "map"]
    lines = {line["line"] for each in maps for line in each}
    strict = crossplane.parse(str(nginx.CONFIG), strict=True, **options)
    assert [each for each in strict["errors"] if each["line"] not in lines] == []
    return found


def block(directives: list[dict[str, Any]], *path: str) -> list[dict[str, Any]]:
    """What stands under `http`, `server`, …; a location by its last word. The last of several."""
    for name in path:
        *_, directives = [
            each["block"]
            for each in directives
            if "block" in each and (each["directive"] == name or each["args"][-1:] == [name])
        ]
    return directives


def told(directives: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {each["directive"]: each["args"] for each in directives}


@pytest.fixture(scope="module")
def server() -> list[dict[str, Any]]:
    return block(parsed(), "http", "server")


def test_nginx_waits_longer_and_takes_as_much_as_the_proxy(server):
    fields, rules = Settings.model_fields, told(server)
    read_s = float(rules["proxy_read_timeout"][0].removesuffix("s"))
    assert read_s > fields["request_timeout_s"].default
    size_mb = float(rules["client_max_body_size"][0].removesuffix("m"))
    assert size_mb * 1_000_000 >= Settings().max_request_bytes


def test_strangers_are_limited(server):
    rules, http = told(server), told(block(parsed(), "http"))
    zone = rules["limit_req"][0].removeprefix("zone=")
    assert any(f"zone={zone}:" in word for word in http["limit_req_zone"])
    assert any(f"zone={rules['limit_conn'][0]}:" in word for word in http["limit_conn_zone"])
    assert http["limit_req_zone"][0] == http["limit_conn_zone"][0] == "$binary_remote_addr"
    assert http["limit_req_status"] == http["limit_conn_status"] == ["429"]
    for name in ("client_header_timeout", "client_body_timeout", "send_timeout"):
        assert 0 < float(rules[name][0].removesuffix("s")) <= 60, name
    assert http["server_tokens"] == ["off"]


def test_requests_are_taken_over_tls_only(server):
    rules = told(server)
    assert rules["listen"][-1] == "ssl"
    assert {"ssl_certificate", "ssl_certificate_key"} <= set(rules)
    assert set(rules["ssl_protocols"]) == {"TLSv1.2", "TLSv1.3"}
    plain, _ = (each["block"] for each in block(parsed(), "http") if each["directive"] == "server")
    assert {each["directive"] for each in plain} == {"listen", "return"}
    assert told(plain)["return"] == ["308", "https://$host$request_uri"]


@pytest.mark.parametrize("path", [chat_socket.PATH, response_socket.PATH])
@pytest.mark.parametrize(
    ("asked", "passed"), [("websocket", True), ("WebSocket", True), ("h2c", False), (None, False)]
)
def test_a_connection_becomes_a_websocket_and_nothing_else(place, path, asked, passed):
    front, (proxy,) = place(answers)
    headers = {} if asked is None else {"Upgrade": asked, "Connection": "Upgrade"}
    httpx.get(f"{front.url}{path}", headers=headers, verify=front.trust, timeout=10)
    (seen,) = proxy.seen
    assert seen.get("Upgrade") == ("websocket" if passed else None)
    assert (seen.get("Connection") == "upgrade") is passed


@nginx.needs_nginx
def test_a_refused_configuration_ends_the_wait_at_once_with_its_reason(tmp_path):
    with (
        pytest.raises(AssertionError, match="no servers are inside upstream"),
        nginx.running([], tmp_path),
    ):
        pass
