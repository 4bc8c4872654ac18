"""`trace` and `top` of a proxy in front of a real tritonserver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.fixtures.stack import HANG_S, ROOT, Stack, eventually

PATH = "/v1/chat/completions"
ASKED = {
    "model": "steady", "messages": [{"role": "user", "content": "Hello!"}],
    "max_tokens": 5,
}  # fmt: skip


def command(stack: Stack, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli", *arguments, "--url", stack.url],
        cwd=ROOT,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def load(stack: Stack) -> Iterator[None]:
    """One request after the other."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            httpx.post(f"{stack.url}{PATH}", json=ASKED, timeout=HANG_S)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_request_that_has_ended_is_found(scripted_stack):
    with httpx.Client(base_url=scripted_stack.url, timeout=HANG_S) as client:
        ids = [client.post(PATH, json=ASKED).headers["x-request-id"] for _ in range(2)]

        def are_found() -> bool:
            found = [client.get(f"/admin/v1/requests/{each}") for each in ids]
            return all(one.is_success and one.json()["completion_tokens"] == 5 for one in found)

        eventually(are_found, 10, "found")
    record = json.loads(command(scripted_stack, "trace", ids[0], "--json"))
    assert (record["id"], record["model"]) == (ids[0], "steady")
    assert "model steady" in command(scripted_stack, "trace", ids[-1])
    assert set(ids) <= {line.split()[0] for line in command(scripted_stack, "trace").splitlines()}


def test_top_shows_the_load(scripted_stack):
    def tokens() -> float:
        text = command(scripted_stack, "top", "--once", "--interval", "2")
        row = next(line.split() for line in text.splitlines() if line.startswith("steady "))
        return float(row[-1].rstrip("k"))

    with load(scripted_stack):
        eventually(lambda: tokens() > 0, 10, "tokens of a model")
