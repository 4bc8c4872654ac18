"""`triton-openai batches` calls a running proxy with the key of a caller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from proxy.domain.identity import Scope
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.application import application
from tests.fixtures.running_app import RunningApp
from tests.fixtures.stack import HANG_S, eventually

URL = "/v1/completions"
LINE = {"method": "POST", "url": URL, "body": {"model": "demo", "prompt": "hi"}}


class Caller:
    """Of a running proxy. begin(): the id of a new batch of two lines."""

    def __init__(self, url: str, keys: KeysInMemory, engine: ScriptedEngine) -> None:
        self.engine = engine
        own = frozenset({Scope.BATCHES, Scope.COMPLETIONS})
        self.key = keys.add("own1", scopes=own)
        self.admin = keys.add("admin", scopes=frozenset({Scope.ADMIN}))
        headers = {"authorization": f"Bearer {self.key}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=HANG_S)

    def begin(self) -> str:
        text = "\n".join(json.dumps({"custom_id": each, **LINE}) for each in "ab")
        form = {"files": {"file": ("a", text.encode())}, "data": {"purpose": "batch"}}
        asked = {"endpoint": URL, "completion_window": "24h"}
        answer = self.http.post("/v1/files", **form)
        assert answer.status_code == 200, answer.text
        asked["input_file_id"] = answer.json()["id"]
        return self.http.post("/v1/batches", json=asked).json()["id"]


@pytest.fixture
def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    keys = KeysInMemory()
    engine = ScriptedEngine(deltas("ok"))
    app = application(engine, keys=keys, key_pepper=PEPPER, files_url=str(tmp_path / "files"))
    with capture_logs(), RunningApp(app) as running:
        made = Caller(running.url, keys, engine)
        monkeypatch.setenv("OPENAI_API_KEY", made.key)
        monkeypatch.setenv("PORT", running.url.rpartition(":")[2])
        with made.http:
            yield made


def test_batches_are_listed_and_shown_for_people_and_as_json(succeeds, caller):
    ids = [caller.begin() for _ in range(3)]
    eventually(
        lambda: "completed" in json.loads(succeeds("batches", "show", ids[0], "--json"))["status"],
        within_s=20,
        what="the batch ends",
    )
    for arguments in (("batches",), ("batches", "list")):
        table = succeeds(*arguments).splitlines()
        assert [line.split()[0] for line in table] == ["id", *reversed(ids)]
    (_, row, more) = succeeds("batches", "list", "--limit", "1").splitlines()
    assert row.split()[0] == ids[2]
    assert more.endswith(f"--after {ids[2]}")
    older = json.loads(succeeds("batches", "list", "--after", ids[2], "--json"))
    assert [each["id"] for each in older["data"]] == ids[1::-1]
    shown = dict(
        line.split(maxsplit=1) for line in succeeds("batches", "show", ids[0]).splitlines()
    )
    assert shown["request_counts"].strip() == "total=2, completed=2, failed=0"
    assert shown["created_at"].startswith("20")
    assert "cancelled_at" not in shown


def test_cancel_ends_a_batch_and_refusals_are_one_line(succeeds, fails, caller, monkeypatch):
    batch_id = caller.begin()
    eventually(
        lambda: "completed" in succeeds("batches", "show", batch_id),
        within_s=20,
        what="the batch ends",
    )
    assert "cannot be cancelled" in fails("batches", "cancel", batch_id)
    assert "There is no batch" in fails("batches", "cancel", "batch_none")
    caller.engine.scripts, caller.engine.hangs = [[*deltas("ok", None)]], True
    running = caller.begin()
    assert json.loads(succeeds("batches", "cancel", running, "--json"))["id"] == running
    for key, said in ((caller.admin, "scope batches"), ("", "Set OPENAI_API_KEY")):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert said in fails("batches")
