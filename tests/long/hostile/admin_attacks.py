"""Callers without a key who want to use the administration: a fuzzer, and a flood of paths."""

from __future__ import annotations

import json
import urllib.request

from tests.long.hostile.attack import Attack, Reply, Target
from tests.long.hostile.caller import exchange, many, message
from tests.long.hostile.structured_attacks import fresh

BODIES = (b"", b"{}", b'{"address": "127.0.0.1:8001"}', b'{"level": "debug"}')


def documented_routes(target: Target) -> list[Reply]:
    """Each route of the administration in /openapi.json, as a fuzzer follows it."""
    with urllib.request.urlopen(f"http://{target.host}:{target.port}/openapi.json") as found:
        paths = json.load(found)["paths"]
    requests = [
        message(target, body, path.replace("{", "").replace("}", ""), method.upper())
        for path, methods in paths.items()
        if path.startswith("/admin/")
        for method in methods
        for body in BODIES
    ]
    assert len(requests) > len(BODIES), "no route of the administration is documented"
    return [exchange(target, request) for request in requests]


def random_paths(target: Target) -> list[Reply]:
    paths = [f"/admin/{fresh()}" for _ in range(2_000)]
    return many(target, [message(target, b"", path, "GET") for path in paths], 200)


FORBIDDEN = frozenset({403})
ATTACKS: list[Attack] = [
    Attack(
        "admin: every documented route",
        documented_routes,
        answers=FORBIDDEN,
        cpu_s=3,
        attacks=("/admin/",),
    ),
    Attack(
        "admin: 2,000 random paths",
        random_paths,
        answers=FORBIDDEN,
        connections=2_000,
        gap_s=1.0,
        cpu_s=8,
    ),
]
