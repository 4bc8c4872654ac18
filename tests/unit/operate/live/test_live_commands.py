"""`trace` and `top` against a running proxy over a scripted engine."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx
import pytest
from structlog.testing import capture_logs

from proxy.domain.errors import LaunchError
from proxy.domain.identity import Scope
from proxy.operate.administration.remote import AdminClient
from proxy.operate.live.top import FrameReader
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.application import application, operations
from tests.fixtures.running_app import RunningApp
from tests.fixtures.stack import HANG_S, ROOT, eventually

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
ADDRESS = "10.0.0.1:8001"


class RunningProxy(RunningApp):
    """admin, watcher, caller: keys with all scopes, with `metrics` only, with `chat` only."""

    def __init__(self) -> None:
        keys = KeysInMemory()
        self.admin = keys.add("admin")
        self.watcher = keys.add("watcher", scopes=frozenset({Scope.METRICS}))
        self.caller = keys.add("caller", scopes=frozenset({Scope.CHAT}))
        engine, operated = ScriptedEngine(deltas("an answer")), operations(ADDRESS)
        super().__init__(application(engine, keys=keys, operations=operated, key_pepper=PEPPER))

    def chat(self, **fields: object) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.caller}"}
        url = f"{self.url}/v1/chat/completions"
        return httpx.post(url, json={**CHAT, **fields}, headers=headers, timeout=HANG_S)

    def kept(self, **fields: object) -> httpx.Response:
        """A chat that is over: a request ends after its client has the whole answer."""
        answer = self.chat(**fields)
        path = f"{self.url}/admin/v1/requests/{answer.headers['x-request-id']}"
        headers = {"authorization": f"Bearer {self.admin}"}
        eventually(lambda: httpx.get(path, headers=headers).is_success, 10, "it is kept")
        return answer


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningProxy]:
    with capture_logs(), RunningProxy() as running:
        monkeypatch.setenv("ADMIN_KEY", running.admin)
        monkeypatch.setenv("PORT", running.url.rpartition(":")[2])
        yield running


@contextmanager
def load(proxy: RunningProxy) -> Iterator[None]:
    """One request after the other."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            assert proxy.chat().status_code == 200

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def row(text: str, name: str) -> list[str]:
    """The cells of the line that begins with the name."""
    return next(line.split() for line in text.splitlines() if line.startswith(name))


def test_a_request_is_shown_by_either_id_as_bars_or_json(proxy, succeeds):
    answer = proxy.kept()
    request_id = answer.headers["x-request-id"]
    text = succeeds("trace", request_id)
    assert text == succeeds("trace", answer.json()["id"])
    assert text.splitlines()[0].split() == [request_id, answer.json()["id"]]
    assert re.search(r"^model demo  tenant acme  status 200  finish stop$", text, re.MULTILINE)
    tokens = answer.json()["usage"]["completion_tokens"]
    assert f"+ {tokens}  TTFT" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert re.search(r"^request +█+ ", text, re.MULTILINE)
    record = json.loads(succeeds("trace", request_id, "--json"))
    assert (record["id"], record["completion_tokens"]) == (request_id, tokens)


def test_without_an_id_the_last_requests_are_listed_and_filtered(proxy, succeeds):
    found = [proxy.kept().headers["x-request-id"] for _ in range(2)]
    wrong = proxy.kept(model="none").headers["x-request-id"]

    def ids(*options: str) -> list[str]:
        return [line.split()[0] for line in succeeds("trace", *options).splitlines()[1:]]

    assert ids() == [wrong, *reversed(found)]
    assert ids("--failed") == [wrong]
    assert ids("--model", "demo", "--limit", "1") == found[1:]
    assert succeeds("trace", "--min-ms", "1e9").startswith("No request")
    listed = json.loads(succeeds("trace", "--tenant", "acme", "--json"))
    assert [each["id"] for each in listed["data"]] == [wrong, *reversed(found)]


def test_trace_says_what_to_do(proxy, fails, monkeypatch):
    assert "last 1000" in fails("trace", "req_none")
    assert "--model filters" in fails("trace", "req_none", "--model", "demo")
    monkeypatch.setenv("ADMIN_KEY", proxy.watcher)
    assert "scope admin" in fails("trace", "req_none")


def test_top_shows_the_load_of_models_and_endpoints(proxy, succeeds):
    shown: list[str] = []

    def has_tokens() -> bool:
        shown[:] = [succeeds("top", "--once", "--interval", "0.5")]
        requests, tokens = row(shown[0], "demo")[1], row(shown[0], "demo")[-1]
        return float(requests.rstrip("k")) > 0 and float(tokens.rstrip("k")) > 0

    with load(proxy):
        eventually(has_tokens, 10, "tokens of a model")
    (text,) = shown
    assert text.startswith(f"{proxy.url}  ready")
    assert row(text, ADDRESS)[1:5] == ["default", "ready", "1", "0"]
    assert "25%" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_top_with_a_key_for_metrics_alone_says_what_is_missing(proxy, succeeds, monkeypatch):
    proxy.chat()
    monkeypatch.setenv("ADMIN_KEY", proxy.watcher)
    text = " ".join(succeeds("top", "--once", "--interval", "0.1").split())
    assert "Without the state and load of endpoints" in text
    assert "a key of the scope admin" in text
    assert " demo 0 " in text


def test_top_says_what_to_do(proxy, fails, monkeypatch):
    monkeypatch.setenv("ADMIN_KEY", proxy.caller)
    assert "a key of the scope admin, or metrics" in fails("top", "--once")
    assert "start it, or give its address with --url" in fails(
        "top", "--once", "--url", "http://127.0.0.1:1"
    )


@pytest.mark.parametrize(
    ("status", "kind", "body", "said"),
    [
        (200, "text/html", "<p>hello</p>", "is not a triton-openai proxy"),
        (404, "application/json", '{"error": {"code": "unknown_url"}}', "an older release"),
        (200, "text/event-stream", 'data: {"type": "hello"}\n\n', "is another release"),
        (200, "text/event-stream", "data: {\n\n", "is another release"),
    ],
)
def test_a_status_that_cannot_be_read_is_an_error_and_no_silence(status, kind, body, said):
    answer = httpx.Response(status, headers={"content-type": kind}, text=body)
    transport = httpx.MockTransport(lambda _: answer)
    with (
        AdminClient("http://proxy", transport=transport) as proxy,
        closing(FrameReader(proxy)) as reader,
        pytest.raises(LaunchError, match=said),
    ):
        reader.last()


def test_on_a_terminal_top_is_live_until_q_and_leaves_it_as_it_was(proxy):
    mine, its = pty.openpty()
    fcntl.ioctl(mine, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 60, 0, 0))
    before = termios.tcgetattr(its)
    command = [sys.executable, "-m", "proxy.cli", "top", "--interval", "60"]
    environment = {**os.environ, "TERM": "xterm", "ADMIN_KEY": proxy.admin}
    with subprocess.Popen(
        [*command, "--url", proxy.url], stdin=its, stdout=its, stderr=its, env=environment, cwd=ROOT
    ) as process:
        seen = b""
        while b"l TTFT" not in seen:  # the frame at the start
            assert process.poll() is None, seen
            if select.select([mine], [], [], 0.1)[0]:
                seen += os.read(mine, 65_536)
        os.write(mine, b"rq")
        assert process.wait(HANG_S) == 0
        os.set_blocking(mine, False)
        seen += os.read(mine, 65_536)
    assert seen.count(b"sort:") == 2  # at once, and for the key `r`
    assert seen.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")  # the screen before, with a cursor
    assert termios.tcgetattr(its) == before
    os.close(mine)
    os.close(its)
