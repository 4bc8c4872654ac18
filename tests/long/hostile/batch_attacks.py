"""Files and batches: large and strange forms, files of bad lines, many files, looks and batches."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

from tests.long.hostile.attack import ANY, Attack, Reply, Send, Target
from tests.long.hostile.caller import CHAT, encoded, exchange, many, message

FILES, BATCHES = "/v1/files", "/v1/batches"
FILE, CONTENT = f"{FILES}/{{file_id}}", f"{FILES}/{{file_id}}/content"
BATCH, CANCEL = f"{BATCHES}/{{batch_id}}", f"{BATCHES}/{{batch_id}}/cancel"
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
PURPOSE = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
END = b"\r\n--b--\r\n"
STRANGER = "file-" + "0" * 24
ANYTHING = ANY | {405, 503}


def form(content: bytes) -> bytes:
    return PURPOSE + HEAD + content + END


def line(number: int, **body: Any) -> bytes:
    asked = {"model": "steady", "messages": [{"role": "user", "content": "a"}], **body}
    fields = {"custom_id": f"{number}", "method": "POST", "url": CHAT, "body": asked}
    return json.dumps(fields).encode() + b"\n"


def answered(reply: Reply) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(reply.body.partition(b"\r\n\r\n")[2])
        return found if isinstance(found, dict) else {}
    return {}


def uploaded(target: Target, content: bytes) -> Reply:
    return exchange(target, message(target, form(content), FILES, headers=FORM))


def upload(body: Callable[[], bytes], count: int = 1) -> Send:
    def send(target: Target) -> list[Reply]:
        return many(target, [message(target, body(), FILES, headers=FORM)] * count, count)

    return send


def created(target: Target, content: bytes, count: int = 1) -> list[Reply]:
    file = answered(uploaded(target, content)).get("id", STRANGER)
    asked = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
    return many(target, [message(target, encoded(asked), BATCHES)] * count, count)


def get(target: Target, path: str, method: str = "GET") -> bytes:
    return message(target, b"", path, method)


def run(content: Callable[[], bytes], seconds: float = 5.0, count: int = 1) -> Send:
    """Batches of these lines, which are cancelled in the end."""

    def send(target: Target) -> list[Reply]:
        replies = created(target, content(), count)
        time.sleep(seconds)
        paths = [f"{BATCHES}/{answered(one).get('id', 'batch_x')}/cancel" for one in replies]
        return replies + many(target, [get(target, path, "POST") for path in paths], 9)

    return send


def looks(target: Target) -> list[Reply]:
    """Lists, batches and contents, 200 times each."""
    file = answered(uploaded(target, line(0) * 2_000)).get("id", STRANGER)
    batch = answered(created(target, line(0))[0]).get("id", "batch_x")
    paths = (FILES, f"{FILES}?limit=1", BATCHES, f"{BATCHES}?limit=100", f"{BATCHES}/{batch}")
    paths += (f"{FILES}/{file}", f"{FILES}/{file}/content", f"{FILES}?after={'x' * 6_000}")
    return many(target, [get(target, path) for path in paths] * 200, 100)


def races(target: Target) -> list[Reply]:
    """Files and batches that are read, deleted, and cancelled at once."""
    requests = []
    for _ in range(10):
        file = answered(uploaded(target, line(0))).get("id", STRANGER)
        asked = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
        begin = message(target, encoded(asked), BATCHES)
        batch = answered(exchange(target, begin)).get("id", "batch_x")
        requests += [begin, get(target, f"{FILES}/{file}", "DELETE")] * 2
        requests += [get(target, f"{BATCHES}/{batch}/cancel", "POST")] * 2
        requests += [get(target, f"{FILES}/{file}/content"), get(target, f"{BATCHES}/{batch}")]
    return many(target, requests, 80)


UPLOADS, RUN = (FILES,), (FILES, BATCHES, CANCEL)
ATTACKS = [
    Attack(
        "files: 150 MB of one line",
        upload(lambda: form(b"a" * 150_000_000)),
        wall_s=60,
        cpu_s=8,
        attacks=UPLOADS,
    ),
    Attack(
        "files: a length of 5 GB",
        lambda t: [
            exchange(t, message(t, b"x", FILES, headers={**FORM, "Content-Length": "5000000000"}))
        ],
        attacks=UPLOADS,
    ),
    Attack("files: 50,000 parts", upload(lambda: PURPOSE * 50_000 + END), attacks=UPLOADS),
    Attack(
        "files: a head of 2 MB", upload(lambda: b"--b\r\n" + b"x: y\r\n" * 350_000), attacks=UPLOADS
    ),
    Attack(
        "files: 20 MB that are nearly boundaries",
        upload(lambda: form(b"\r\n--\r\n-" * 2_800_000)),
        wall_s=20,
        cpu_s=3,
        attacks=UPLOADS,
    ),
    Attack(
        "files: 300 at once",
        upload(lambda: form(line(0)), 300),
        connections=300,
        wall_s=20,
        cpu_s=3,
        answers=ANYTHING,
        attacks=UPLOADS,
    ),
    Attack(
        "batches: one line of 100 MB",
        run(lambda: b'{"a":"' + b"x" * 100_000_000),
        cpu_s=8,
        wall_s=40,
        attacks=RUN,
    ),
    Attack(
        "batches: 100,000 lines",
        run(lambda: b"".join(map(line, range(100_000))), 8),
        cpu_s=10,
        wall_s=40,
        attacks=RUN,
    ),
    Attack(
        "batches: 40 lines, each 50,000 deep",
        run(lambda: (b"[" * 50_000 + b"\n") * 40),
        cpu_s=3,
        attacks=RUN,
    ),
    Attack(
        "batches: a line of 400,000 objects",
        run(lambda: line(0, stop=[{}] * 400_000)),
        cpu_s=3,
        attacks=RUN,
    ),
    Attack("batches: 3,000,000 blank lines", run(lambda: b"\n" * 3_000_000), cpu_s=6, attacks=RUN),
    Attack(
        "batches: 60 of 50 lines at once",
        run(lambda: b"".join(line(n, max_tokens=200) for n in range(50)), 5, 60),
        connections=120,
        answers=ANYTHING,
        cpu_s=6,
        attacks=RUN,
    ),
    Attack(
        "batches: 1,600 looks",
        looks,
        connections=1_600,
        answers=ANYTHING,
        wall_s=60,
        cpu_s=20,
        attacks=(FILE, CONTENT, BATCH),
    ),
    Attack(
        "batches: races of files and batches",
        races,
        connections=80,
        answers=ANYTHING,
        wall_s=20,
        cpu_s=3,
        attacks=(FILE, CONTENT, BATCH, CANCEL),
    ),
]
