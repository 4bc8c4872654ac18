"""Requests recorded at one proxy are sent to another: `triton-openai replay` says what differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from proxy.cli import main
from proxy.domain.output import FinishReason
from tests.api.journal.test_journaling import BODY, CHAT, COMPLETIONS, Recorded
from tests.api.tools.test_tools import CATALOG
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.application import application
from tests.fixtures.running_app import RunningApp
from tests.fixtures.stack import free_port

KEY = "the-key-of-the-other-proxy-is-long"
SEEDED = {**BODY, "seed": 7}


def other(engine: ScriptedEngine) -> RunningApp:
    return RunningApp(application(engine, api_key=KEY))


class Replays:
    """run(*arguments, status=…) -> (what it printed, the lines of its output file)."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capfd = folder, capfd

    def run(self, *arguments: str, status: int = 0) -> tuple[str, list[dict[str, Any]]]:
        output = self.folder / "differences.jsonl"
        records = str(self.folder / "records")
        with capture_logs(), pytest.raises(SystemExit) as ended:
            main(["replay", "--from", records, "--output", str(output), *arguments])
        out, err = self._capfd.readouterr()
        assert ended.value.code == status, (out, err)
        return out + err, [json.loads(line) for line in output.read_text().splitlines()]


@pytest.fixture
def replays(tmp_path, capfd, monkeypatch) -> Replays:
    monkeypatch.setenv("REPLAY_KEY", KEY)
    return Replays(tmp_path, capfd)


def record(folder: Path, *requests: tuple[str, dict]) -> None:
    def work(client: TestClient) -> None:
        for path, body in requests:
            client.post(path, json=body)

    Recorded(folder, ScriptedEngine(deltas("abc"))).run(work)


MESSAGES = ("/v1/messages", {**BODY, "max_tokens": 9, "temperature": 0})
RESPONSES = ("/v1/responses", {"model": "demo", "input": "hi", "temperature": 0})
REQUESTS = (
    (CHAT, SEEDED),
    (CHAT, {**SEEDED, "stream": True, "stream_options": {"include_usage": True}}),
    (COMPLETIONS, {"model": "demo", "prompt": "hi", "temperature": 0}),
    MESSAGES,
    RESPONSES,
    (CHAT, {**BODY, "temperature": 9}),
    (CHAT, {**BODY, "store": False}),
)


@pytest.mark.parametrize("concurrency", ["1", "8"])
def test_the_same_answers_are_the_same(tmp_path, replays, concurrency):
    record(tmp_path, *REQUESTS)
    engine = ScriptedEngine(deltas("abc"))
    with other(engine) as proxy:
        table, lines = replays.run("--to", proxy.url, "--strict", "--concurrency", concurrency)
    assert [line["differs"] for line in lines] == [[]] * 6
    assert sorted(line["status"] for line in lines) == [[200, 200]] * 5 + [[400, 400]]
    assert len(engine.requests) == 5
    rows = [line.split() for line in table.splitlines()]
    (row,) = (row for row in rows if row[:1] == ["demo"])
    assert row[:-2] == ["demo", "6", "6", "0", "0", "0", "0", "0", "5"]
    assert all(each.startswith("x") for each in row[-2:])


def test_other_texts_are_differences_of_requests_that_repeat_only(tmp_path, replays):
    record(tmp_path, (CHAT, SEEDED), (CHAT, {**SEEDED, "stream": True}), (CHAT, BODY))
    with other(ScriptedEngine(deltas("abX"))) as proxy:
        _, lines = replays.run("--to", proxy.url, "--strict", status=1)
        found = sorted(
            (line["differs"], line["first_difference"]) for line in lines if line["differs"]
        )
        assert found == [(["text"], 2), (["text"], 2)]
        assert [line["is_deterministic"] for line in lines].count(False) == 1
        replays.run("--to", proxy.url)
    assert all("abX" not in json.dumps(line) for line in lines)


CALL = '<tool_call>{"name": "f", "arguments": {"x": %d}}</tool_call>'
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
TOOLS = {
    CHAT: {"type": "function", "function": FUNCTION},
    "/v1/messages": {"name": "f", "input_schema": FUNCTION["parameters"]},
    "/v1/responses": {"type": "function", **FUNCTION},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [(CHAT, SEEDED), MESSAGES, RESPONSES])
def test_texts_calls_ends_and_tokens_of_each_protocol_are_compared(
    tmp_path, replays, path, body, stream
):
    body = {**body, "stream": stream, "tools": [TOOLS[path]]}
    if path == CHAT and stream:
        body["stream_options"] = {"include_usage": True}
    said = f"a {CALL % 1}"
    Recorded(tmp_path, ScriptedEngine(deltas(said)), catalog=CATALOG).run(
        lambda client: client.post(path, json=body)
    )
    for deltas_of, differs in (
        (deltas(said), set()),
        (deltas(f"b {CALL % 1}"), {"text"}),
        (deltas(f"a {CALL % 2}"), {"text"}),
        (deltas(f"a {CALL % 11}"), {"text", "usage"}),
        (deltas("a", finish=FinishReason.LENGTH), {"text", "usage", "finish"}),
    ):
        with RunningApp(application(ScriptedEngine(deltas_of), CATALOG, api_key=KEY)) as proxy:
            _, (line,) = replays.run("--to", proxy.url)
        assert (line["status"], {*line["differs"]}) == ([200, 200], differs)


def test_a_proxy_that_does_not_answer_or_knows_no_key_differs(tmp_path, replays, monkeypatch):
    record(tmp_path, (CHAT, SEEDED))
    _, (line,) = replays.run("--to", f"http://127.0.0.1:{free_port()}", "--strict", status=1)
    assert (line["differs"], line["fault"].split(":")[0]) == (["no answer"], "ConnectError")
    monkeypatch.setenv("REPLAY_KEY", "wrong")
    with other(ScriptedEngine(deltas("abc"))) as proxy:
        _, (line,) = replays.run("--to", proxy.url)
    assert (line["status"], line["differs"]) == ([200, 401], ["status", "finish", "text"])


def test_a_choice_without_records_is_an_error(tmp_path, replays):
    record(tmp_path, (CHAT, SEEDED))
    said, _ = replays.run("--to", "http://127.0.0.1:1", "--tenant", "nobody", status=1)
    assert "no such records" in said
    said, _ = replays.run("--to", "http://127.0.0.1:1", "--since", "2999-01-01", status=1)
    assert "no such records" in said
