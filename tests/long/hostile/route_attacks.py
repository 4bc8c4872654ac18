"""Routes that generate nothing: pages, lists, health, usage, KServe's protocol; and plain chats."""

from __future__ import annotations

import json

from tests.long.hostile.attack import ANY, Attack, Reply, Send, Target
from tests.long.hostile.caller import burst, encoded, many, message, post
from tests.long.hostile.structured_attacks import HI

ANYTHING = ANY | {304, 405, 501, 503}
LONG = "é" * 900_000
NAME = "a" * 7_000  # of a path; the server refuses longer lines
INFER = "/v2/models/{model}/infer"
VERSION = "/v2/models/{model}/versions/{version}"
PAGES = (
    *("/", "/version", "/docs", "/redoc", "/openapi.json", "/v1"),
    *("/health", "/health/live", "/health/ready", "/ping"),
    *("/v1/models", "/dynamo/alpha/list-models", "/v1/usage", "/v2", "/v2/health/live"),
    "/v2/health/ready",
)
NAMED = {
    "/page/{name:path}": f"/page/{NAME}",
    "/docs/{name}": f"/docs/{NAME}",
    "/v1/models/{model:path}": f"/v1/models/{NAME}",
    "/v2/models/{model}": f"/v2/models/{NAME}",
    "/v2/models/{model}/ready": f"/v2/models/{NAME}/ready",
    VERSION: f"/v2/models/{NAME}/versions/{'9' * 19}",
    f"{VERSION}/ready": f"/v2/models/{NAME}/versions/{'9' * 19}/ready",
}
LIVE_READERS = 50


def each(paths: tuple[str, ...], count: int) -> Send:
    def send(target: Target) -> list[Reply]:
        return many(target, [message(target, b"", path, "GET") for path in paths] * count, 100)

    return send


def live_readers(target: Target) -> list[Reply]:
    """Readers of the endless live view that ask for all its forms, and disconnect."""
    asked = message(target, b"", "/metrics/live", "GET")
    patient = Target(host=target.host, port=target.port, timeout_s=2)
    return many(patient, [asked] * LIVE_READERS, LIVE_READERS)


def infer(target: Target) -> bytes:
    data = {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": [LONG]}
    return json.dumps({"inputs": [data]}, ensure_ascii=False).encode()


def numbers(target: Target) -> bytes:
    data = {"name": "x", "shape": [1, 190_000], "datatype": "FP32", "data": [1] * 190_000}
    return json.dumps({"inputs": [data]}).encode()


def plain(target: Target) -> bytes:
    asked = {"model": target.steady, "messages": [{"role": "user", "content": LONG}]}
    return encoded(asked, ascii_only=False)


ATTACKS = [
    Attack("pages: each 60 times", each(PAGES, 60), connections=60 * len(PAGES),
        answers=ANYTHING, wall_s=20, cpu_s=3, attacks=PAGES),
    Attack("pages: long names, each 30 times", each(tuple(NAMED.values()), 30),
        connections=30 * len(NAMED), answers=ANYTHING, wall_s=20, attacks=tuple(NAMED)),
    Attack("metrics: 50 readers of the live view", live_readers, connections=LIVE_READERS,
        answers=ANYTHING | {0, -1}, attacks=("/metrics/live",)),
    Attack("infer: a text of 1.8 MB", post(infer, "/v2/models/steady/infer", INFER),
        answers=ANYTHING),
    Attack("infer: 190,000 numbers as JSON", post(numbers, "/v2/models/none/infer", INFER),
        answers=ANYTHING),
    Attack("infer: 20 of 190,000 numbers for a version",
        burst(numbers, "/v2/models/none/versions/1/infer", count=20, route=f"{VERSION}/infer"),
        answers=ANYTHING, wall_s=20),
    Attack("plain: a message of 1.8 MB as a stream", post(plain, "/chat/stream")),
    Attack("plain: 12,000 messages",
        post(lambda t: {"model": t.steady, "messages": HI * 12_000}, "/chat/stream")),
]  # fmt: skip
