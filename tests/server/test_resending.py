"""Triton dies while requests wait for their first token: they finish once it is back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
import yaml

from tests.fixtures.scripted import scripted
from tests.fixtures.stack import Stack, eventually

ROWS, WAITING = 2, 6
RESENT = "proxy_requests_resent_total"
LONG = {"model": "endless", "prompt": "abc", "max_tokens": 4000, "temperature": 0, "stream": True}
SHORT = {**LONG, "max_tokens": 3, "stream": False}


@pytest.fixture(scope="module")
def victim(start, models_file) -> Stack:
    """A model with few rows, and one whose engine dies of every request."""
    endless = yaml.safe_load(models_file.read_text())["models"]["endless"]
    models = {
        "endless": {**endless, "onnx": {"threads": 1, "max_rows": ROWS}},
        "poison": scripted(dies_after=0),
    }
    folder = models_file.parent / "resending"
    folder.mkdir(exist_ok=True)
    path = folder / "models.yaml"
    path.write_text(yaml.safe_dump({"models": models}))
    stack = start("serve", MODELS_FILE=path, ARTIFACTS_DIR=folder)
    stack.wait_ready(within_s=240)
    return stack


def complete(stack: Stack, **fields: object) -> httpx.Response:
    return httpx.post(f"{stack.url}/v1/completions", json={**SHORT, **fields}, timeout=120)


def counted(stack: Stack, metric: str, model: str) -> float:
    """Of the proxy's own metrics."""
    name = f'{metric}{{model="{model}"}} '
    lines = httpx.get(f"{stack.url}/metrics").text.splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def streams(client: httpx.Client, stack: Stack) -> list[Iterator[str]]:
    """One in each row; the first line of each was read."""
    found = []
    for _ in range(ROWS):
        asked = client.build_request("POST", f"{stack.url}/v1/completions", json=LONG)
        lines = client.send(asked, stream=True).iter_lines()
        assert next(lines).startswith("data: {")
        found.append(lines)
    return found


def without_a_token(pool: ThreadPoolExecutor, stack: Stack) -> list[Future[httpx.Response]]:
    """Requests to an engine that is halted."""
    for process in stack.descendants("endless_engine/1/model.py"):
        process.suspend()
    waiting = [pool.submit(complete, stack) for _ in range(WAITING)]
    eventually(
        lambda: counted(stack, "proxy_requests_active", "endless") == ROWS + WAITING,
        60,
        "all are under way",
    )
    return waiting


def kill(stack: Stack) -> None:
    stack.tritonserver().kill()


def kill_engine(stack: Stack) -> None:
    for process in stack.descendants("endless_engine/1/model.py"):
        process.kill()


@pytest.mark.parametrize("end", [kill, kill_engine])
def test_requests_without_a_token_finish_and_those_with_one_fail(
    victim: Stack, end: Callable[[Stack], None]
):
    expected = complete(victim).json()["choices"]
    before = counted(victim, RESENT, "endless")
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(WAITING) as pool:
        running, waiting = streams(client, victim), without_a_token(pool, victim)
        end(victim)
        answers = [request.result() for request in waiting]
        for lines in running:
            *_, error, done = [line for line in lines if line]
            assert json.loads(error.removeprefix("data: "))["error"]["code"] == "model_unavailable"
            assert done == "data: [DONE]"
    assert [answer.status_code for answer in answers] == [200] * WAITING
    assert all(answer.json()["choices"] == expected for answer in answers)
    assert counted(victim, RESENT, "endless") - before == WAITING


def test_a_request_that_kills_triton_each_time_ends(victim: Stack):
    def deaths() -> int:
        return victim.log.read_text().count("tritonserver died")

    before = deaths()
    refused = complete(victim, model="poison")
    assert refused.status_code == 503
    assert "lost 3 times before the first token" in refused.json()["error"]["message"]
    eventually(lambda: complete(victim).status_code == 200, 60, "recovered")
    assert deaths() - before == 3
