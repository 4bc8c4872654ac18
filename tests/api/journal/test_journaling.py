"""Recording over HTTP: which requests are written, what of them, and what never is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.application import application
from tests.fixtures.own_server import served
from tests.fixtures.pictures import JPEG, data_url

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
Work = Callable[[TestClient], Any]


class Recorded:
    """An application whose tenant `acme` is recorded, and `other` is not. Runs for one `work`."""

    def __init__(self, folder: Path, engine: ScriptedEngine | None = None, **settings: Any) -> None:
        self.folder = folder / "records"
        keys = KeysInMemory()
        keys.add_tenant("acme", records=True)
        keys.add_tenant("other")
        self.keys = {name: keys.add(f"{name}key", tenant=name) for name in ("acme", "other")}
        given = {"key_pepper": PEPPER, "record_dir": self.folder, **settings}
        self.engine = engine or ScriptedEngine(deltas("abc"))
        self.app = application(self.engine, given.pop("catalog", None), keys=keys, **given)

    def run(self, work: Work) -> list[dict[str, Any]]:
        """The records, when all of them are written."""
        with TestClient(self.app) as client:
            client.headers["authorization"] = f"Bearer {self.keys['acme']}"
            self.result = work(client)
            self.metrics = client.get("/metrics").text
        files = sorted(self.folder.glob("*")) if self.folder.exists() else []
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_and_its_answer_are_recorded_as_they_were_sent(tmp_path, stream):
    recorded = Recorded(tmp_path)
    content = json.dumps({**BODY, "stream": stream}, indent=2)
    (record,) = recorded.run(lambda client: client.post(CHAT, content=content))
    assert recorded.result.status_code == 200
    assert (record["body"], record["answer"]) == (content, recorded.result.text)
    assert (record["status"], record["is_complete"], record["model"]) == (200, True, "demo")
    assert (record["tenant"], record["key_id"]) == ("acme", "acmekey")
    assert record["request_id"] == recorded.result.headers["x-request-id"]
    assert 0 <= record["ttft_ms"] <= record["duration_ms"]


@pytest.mark.parametrize("is_escaped", [False, True])
def test_no_bytes_of_an_image_are_recorded_or_logged(tmp_path, is_escaped):
    catalog = FixedCatalog(facts=replace(FACTS, chat_template=f"{FACTS.chat_template} image"))
    url = data_url("jpeg", JPEG)
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "hi"}]
    content = json.dumps({"model": "demo", "messages": [{"role": "user", "content": parts}]})
    content = content.replace("/", "\\/") if is_escaped else content
    recorded = Recorded(tmp_path, catalog=catalog, log_content=True, log_level="debug")
    with capture_logs() as lines:
        (record,) = recorded.run(lambda client: client.post(CHAT, content=content))
    assert recorded.result.status_code == 200
    kept = json.loads(record["body"])["messages"][0]["content"]
    assert kept == [
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,"}},
        parts[1],
    ]
    logged = json.dumps(lines, default=str)
    assert "data:image/jpeg;base64," in logged, "it was logged, without the bytes"
    assert "4AAQSkZJ" not in logged + json.dumps(record)


def test_no_header_and_no_key_is_recorded(tmp_path):
    recorded = Recorded(tmp_path)
    recorded.run(lambda client: client.post(CHAT, json=BODY, headers={"x-mine": "a header"}))
    (file,) = recorded.folder.iterdir()
    text = file.read_text()
    assert "a header" not in text
    assert not any(key in text for key in recorded.keys.values())


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("has_key", [False, True])
def test_nothing_of_a_request_with_store_false_is_written(tmp_path, path, stream, has_key):
    body = {"model": "demo", "store": False, "stream": stream}
    body |= {"prompt": "hi"} if path == COMPLETIONS else {"messages": BODY["messages"]}
    headers = {"idempotency-key": "k"} if has_key else {}
    recorded = Recorded(tmp_path)
    assert recorded.run(lambda client: client.post(path, json=body, headers=headers)) == []
    assert recorded.result.status_code == 200
    assert list(recorded.folder.glob("*")) == []


def test_others_are_not_recorded(tmp_path):
    def work(client: TestClient) -> None:
        own = {"authorization": f"Bearer {recorded.keys['other']}"}
        assert client.post(CHAT, json=BODY, headers=own).status_code == 200
        assert client.post("/chat/json", json={"messages": BODY["messages"]}).status_code == 200
        assert client.post("/tokenize", json={"prompt": "hi"}).status_code == 200
        assert client.get("/v1/models").status_code == 200

    recorded = Recorded(tmp_path)
    assert recorded.run(work) == []


def test_an_answer_for_several_requests_with_one_key_is_recorded_once(tmp_path):
    def work(client: TestClient) -> None:
        for _ in range(3):
            client.post(CHAT, json=BODY, headers={"idempotency-key": "k"})

    recorded = Recorded(tmp_path)
    (record,) = recorded.run(work)
    assert (record["tenant"], record["is_complete"]) == ("acme", True)
    assert len(recorded.engine.requests) == 1


def test_a_refusal_is_recorded_by_its_code(tmp_path):
    recorded = Recorded(tmp_path)
    wrong = {**BODY, "temperature": 9}
    (record,) = recorded.run(lambda client: client.post(CHAT, json=wrong))
    assert (record["status"], record["is_complete"]) == (400, True)
    assert json.loads(record["answer"]) == {"error": {"code": "invalid_parameter"}}


def test_a_large_answer_is_counted_and_not_written(tmp_path):
    recorded = Recorded(tmp_path, max_request_size_mb=6)
    body = {"model": "demo", "messages": [{"role": "user", "content": "x" * 4_100_000}]}
    assert recorded.run(lambda client: client.post(CHAT, json=body)) == []
    assert 'proxy_records_total{outcome="too_large"} 1.0' in recorded.metrics


def test_without_a_folder_a_warning_says_so_once(tmp_path):
    def work(client: TestClient) -> None:
        for _ in range(2):
            assert client.post(CHAT, json=BODY).status_code == 200

    recorded = Recorded(tmp_path, record_dir=None)
    with capture_logs() as lines:
        assert recorded.run(work) == []
    said = [line for line in lines if "RECORD_DIR" in line.get("advice", "")]
    assert [(line["tenant"], line["log_level"]) for line in said] == [("acme", "warning")]


def test_an_abandoned_stream_is_recorded_as_incomplete(tmp_path):
    recorded = Recorded(tmp_path, ScriptedEngine(deltas("abc", finish=None), hangs=True))

    async def main() -> None:
        app = recorded.app
        async with app.router.lifespan_context(app), served(app) as (host, port):
            _, writer = await asyncio.open_connection(host, port)
            content = json.dumps({**BODY, "stream": True}).encode()
            head = (
                f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {recorded.keys['acme']}"
                f"\r\nContent-Length: {len(content)}\r\n\r\n"
            )
            writer.write(head.encode() + content)
            await asyncio.wait_for(recorded.engine.given.wait(), 30)
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())
    (file,) = recorded.folder.iterdir()
    record = json.loads(file.read_text())
    assert (record["status"], record["is_complete"]) == (200, False)


@pytest.mark.parametrize("log_content", [False, True])
def test_texts_are_logged_at_debug_only_if_the_settings_say_so(tmp_path, log_content):
    def work(client: TestClient) -> None:
        for body in (BODY, {**BODY, "store": False}, {**BODY, "stream": True}):
            client.post(CHAT, json=body)

    with capture_logs() as lines:
        Recorded(tmp_path, log_content=log_content, record_dir=None).run(work)
    found = [line for line in lines if line["event"] == "content"]
    assert len(found) == (2 if log_content else 0)
    for line in found:
        assert line["log_level"] == "debug"
        assert line["request"]["messages"] == BODY["messages"]
        assert '"abc"' in line["answer"] or '"a' in line["answer"]
