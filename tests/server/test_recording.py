"""Recording by two proxies of one store and folder. No Triton runs; all is refused."""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.cli import main
from tests.fixtures.stack import HANG_S, Stack, eventually, free_port, stopped_at_the_end

AT_ONCE = 12
CHAT = "/v1/chat/completions"
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "temperature": 9}
PEPPER = "a-pepper-for-tests-that-is-long-enough"


class Recorded:
    """key: of the tenant `acme`, who is recorded. stacks: the running proxies."""

    key: str
    stacks: list[Stack]

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.records = folder / "records"
        self.variables = {
            "KEY_PEPPER": PEPPER,
            "STORE_URL": f"sqlite:///{folder / 'store.db'}",
            "RECORD_DIR": str(self.records),
            "MODELS_FILE": str(folder / "models.yaml"),
            **{name: str(free_port()) for name in ("TRITON_GRPC_PORT", "TRITON_METRICS_PORT")},
        }
        (folder / "models.yaml").write_text("models: {another: {weights: w}}")

    def command(self, *arguments: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        out, err = self._capfd.readouterr()
        assert ended.value.code == 0, err
        return json.loads(out)

    def lines(self) -> list[dict[str, Any]]:
        files = sorted(self.records.glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def recorded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Recorded]:
    found = Recorded(tmp_path, capfd)
    for name in ("KEY_PEPPER", "STORE_URL"):
        monkeypatch.setenv(name, found.variables[name])
    found.command("tenants", "create", "acme", "--records")
    found.key = found.command("keys", "create", "--tenant", "acme", "--name", "test")["key"]
    with stopped_at_the_end() as stacks:
        command = ["proxy", "--triton", f"grpc://127.0.0.1:{found.variables['TRITON_GRPC_PORT']}"]
        for number in range(2):
            given = {**found.variables, "PORT": str(free_port())}
            stacks.append(Stack(command, given, tmp_path / f"log-{number}.txt"))
        found.stacks = stacks
        eventually(lambda: all(map(is_alive, stacks)), 30, "they listen")
        yield found


def is_alive(stack: Stack) -> bool:
    try:
        return httpx.get(f"{stack.url}/health/live", timeout=HANG_S).status_code == 200
    except httpx.TransportError:
        return False


def send(recorded: Recorded, number: int, **fields: object) -> int:
    headers = {"authorization": f"Bearer {recorded.key}"}
    url = recorded.stacks[number % 2].url + CHAT
    answer = httpx.post(url, json={**BODY, **fields}, headers=headers, timeout=HANG_S)
    return answer.status_code


def send_at_once(recorded: Recorded, **fields: object) -> list[int]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda number: send(recorded, number, **fields), range(AT_ONCE)))


def test_each_proxy_records_into_a_file_of_its_own_until_the_tenant_is_changed(recorded):
    sent: list[int] = []

    def are_two() -> bool:
        sent.extend(send_at_once(recorded))
        send_at_once(recorded, store=False)
        return len(list(recorded.records.iterdir())) == 2

    eventually(are_two, 20, "both proxies record")
    eventually(lambda: len(recorded.lines()) >= len(sent), 10, "all are written")
    lines = recorded.lines()
    assert sorted(line["status"] for line in lines) == sorted(sent)
    assert {json.loads(line["body"])["temperature"] for line in lines} == {9}
    files = list(recorded.records.iterdir())
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert all(recorded.key not in file.read_text() for file in files)
    recorded.command("tenants", "update", "acme", "--no-records")
    eventually(lambda: is_unrecorded(recorded), 5, "no proxy records")
    settled = len(recorded.lines())
    send_at_once(recorded)
    # what waits is written before
    assert [each.stop(signal.SIGTERM) for each in recorded.stacks] == [0, 0]
    assert len(recorded.lines()) == settled


def is_unrecorded(recorded: Recorded) -> bool:
    before = len(recorded.lines())
    send_at_once(recorded)
    return len(recorded.lines()) == before
