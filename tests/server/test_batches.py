"""A batch on a real engine, whose proxies, Redis and Triton are killed at any moment."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import openai

from tests.fixtures.redis_server import needs_redis, running
from tests.fixtures.running import Start
from tests.fixtures.stack import HANG_S, PLAIN, Stack, eventually

URL = "/v1/completions"
PEPPER = "a-pepper-for-tests-that-is-long-enough"
KILLS = 6
LINES = 400
TOKENS = 12
ENDED = ("completed", "failed", "cancelled", "expired")


def line(number: int) -> str:
    """Every tenth is wrong."""
    body = {"model": "endless", "prompt": f"line {number}", "max_tokens": TOKENS}
    body |= {"ignore_eos": True, "seed": number} | ({} if number % 10 else {"nonsense": 1})
    return json.dumps({"custom_id": f"line-{number}", "method": "POST", "url": URL, "body": body})


def admin_key(proxy: Stack, store: Path) -> str:
    made = eventually_file(store.with_suffix(".admin-key"))
    admin = {"authorization": f"Bearer {made}"}
    PLAIN.post(f"{proxy.url}/admin/v1/tenants", json={"name": "acme"}, headers=admin)
    scopes = {"tenant": "acme", "name": "k", "scopes": ["batches", "completions", "models"]}
    answer = PLAIN.post(f"{proxy.url}/admin/v1/keys", json=scopes, headers=admin)
    assert answer.status_code == 200, answer.text
    return answer.json()["key"]


def eventually_file(path: Path) -> str:
    eventually(path.exists, 10, str(path))
    return path.read_text().strip()


def checked(client: openai.OpenAI, batch_id: str, batches: int, store: Path) -> None:
    """Each line once: in its file, in order, and in the usage. batches: that have ended."""
    batch = client.batches.retrieve(batch_id)
    wrong = [number for number in range(LINES) if number % 10 == 0]
    right = [number for number in range(LINES) if number % 10]
    assert batch.status == "completed"
    assert batch.request_counts.completed == len(right)
    assert batch.request_counts.failed == len(wrong)
    tokens = 0
    for file_id, numbers in ((batch.output_file_id, right), (batch.error_file_id, wrong)):
        found = [json.loads(each) for each in client.files.content(file_id).text.splitlines()]
        assert [each["custom_id"] for each in found] == [f"line-{number}" for number in numbers]
        for each in found:
            usage = each["response"]["body"].get("usage")
            tokens += 0 if usage is None else usage["completion_tokens"]
    assert tokens == len(right) * TOKENS
    with sqlite3.connect(store) as database:
        ((requests, charged),) = database.execute(
            "SELECT sum(requests), sum(output_tokens) FROM usage WHERE tenant = 'acme'"
        )
    assert (requests, charged) == (batches * len(right), batches * tokens)
    assert batch.usage.output_tokens == tokens


def run_killed(
    kill: Callable[[random.Random], None],
    url: Callable[[], str],
    first: Stack,
    store: Path,
    kills: int,
) -> None:
    """Batch after batch, until so many processes were killed while one ran. kill: also starts it
    again. url: of a proxy that lives.
    """
    key, draw, killed, ended = admin_key(first, store), random.Random(kills), 0, 0
    text = "".join(f"{line(number)}\n" for number in range(LINES)).encode()

    def client() -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{url()}/v1", api_key=key, max_retries=5)

    while killed < kills:
        file = client().files.create(file=("in.jsonl", text), purpose="batch")
        batch = client().batches.create(
            input_file_id=file.id, endpoint=URL, completion_window="24h"
        )
        while killed < kills and client().batches.retrieve(batch.id).status not in ENDED:
            time.sleep(draw.uniform(0, 1.5))
            kill(draw)
            killed += 1
        until_it_ends(client(), batch.id)
        ended += 1
        checked(client(), batch.id, ended, store)


def until_it_ends(client: openai.OpenAI, batch_id: str) -> None:
    eventually(lambda: client.batches.retrieve(batch_id).status in ENDED, HANG_S, "the batch ends")


def settings_of(folder: Path, **more: object) -> dict[str, object]:
    return {
        "KEY_PEPPER": PEPPER,
        "STORE_URL": f"sqlite:///{folder / 'store.db'}",
        "FILES_URL": folder / "files",
        "DRAIN_TIMEOUT_S": 1,
        **more,
    }


def assert_each_line_once(start: Start, stack: Stack, folder: Path, kills: int) -> None:
    """Two proxies with Redis."""
    target = f"grpc://127.0.0.1:{stack.triton_grpc_port}"
    with running(folder) as redis:
        given = settings_of(folder, LEDGER_URL=redis.url, LEDGER_TIMEOUT_MS=5_000)

        def proxy() -> Stack:
            return start("proxy", "--triton", target, **given)

        proxies = [proxy(), proxy()]
        for each in proxies:
            each.wait_ready()

        victims: list[int] = []

        def kill(draw: random.Random) -> None:
            """Each process as often as another."""
            if not victims:
                victims.extend(draw.sample((0, 1, 2), 3))
            victim = victims.pop()
            if victim == 2:
                redis.kill()
                time.sleep(draw.uniform(0, 1))
                redis.start()
                return
            proxies[victim].stop(signal.SIGKILL)
            proxies[victim] = proxy()

        def ready() -> list[Stack]:
            return [each for each in proxies if each.is_ready()]

        def url() -> str:
            eventually(ready, 60, "a proxy is ready")
            return ready()[0].url

        run_killed(kill, url, proxies[0], folder / "store.db", kills)
        for each in proxies:
            each.stop()


@needs_redis
def test_each_line_counts_once_whatever_is_killed(start, stack, tmp_path):
    assert_each_line_once(start, stack, tmp_path, KILLS)


def test_each_line_counts_once_when_triton_is_killed(start, tmp_path):
    own = start("serve", **settings_of(tmp_path))
    own.wait_ready(within_s=110)

    def kill(draw: random.Random) -> None:
        eventually(lambda: own.descendants("bin/tritonserver"), 60, "tritonserver runs")
        for process in own.descendants("bin/tritonserver"):
            process.kill()
        eventually(own.is_ready, 110, "Triton is back")

    run_killed(kill, lambda: own.url, own, tmp_path / "store.db", 2)
    own.stop()
