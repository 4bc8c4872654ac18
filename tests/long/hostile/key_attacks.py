"""Idempotency keys: one for many callers, many at once, long ones, and answers nobody reads."""

from __future__ import annotations

import socket
import time

from tests.long.hostile.attack import ANY, Attack, Target
from tests.long.hostile.caller import Body, Reply, encoded, exchange, many, message
from tests.long.hostile.connection_attacks import HELD_S, opened, sent
from tests.long.hostile.structured_attacks import chat, fresh

KEY, LAST = "Idempotency-Key", "Last-Event-ID"
FLOODED = ANY | {409, 503}


def keyed(target: Target, body: Body, key: str, **headers: str) -> bytes:
    given = {KEY: key, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return message(target, encoded(body(target)), headers=given)


def one_key(target: Target) -> list[Reply]:
    """1,000 connections that read one stream."""
    request = keyed(target, chat(stream=True, max_tokens=50), fresh())
    return many(target, [request] * 1_000, 1_000)


def many_keys(target: Target) -> list[Reply]:
    """5,000 different keys, as many of them at once as there may be connections."""
    mark = fresh()
    requests = [keyed(target, chat(max_tokens=1), f"{mark}-{i}") for i in range(5_000)]
    return many(target, requests, 1_000)


def long_keys(target: Target) -> list[Reply]:
    return many(target, [keyed(target, chat(), "k" * 100_000)] * 50, 50)


def one_key_for_many_bodies(target: Target) -> list[Reply]:
    key = fresh()
    bodies = [chat(stream=True, max_tokens=50, seed=number) for number in range(300)]
    return many(target, [keyed(target, body, key) for body in bodies], 300)


def unread_answers(target: Target) -> list[Reply]:
    """A kept answer, which 200 connections ask for and do not read."""
    body = chat(stream=True, max_tokens=200, logprobs=True, top_logprobs=20, n=4)
    request = keyed(target, body, fresh())
    kept = exchange(target, request)
    with opened(target, 200) as socks:
        for sock in socks:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sent(sock, request)
        time.sleep(HELD_S)
    return [kept]


def large_bodies(target: Target) -> list[Reply]:
    """Twice the same with one key: the second joins the first, or is refused as it was."""
    body = chat(messages=[{"role": "user", "content": "word " * 380_000}])
    return many(target, [keyed(target, body, fresh())] * 2, 2)


ATTACKS = [
    Attack(
        "keys: 1,000 connections with one",
        one_key,
        connections=1_000,
        answers=FLOODED,
        gap_s=1.0,  # the throughput of two cores, as of other floods
        wall_s=30,
        cpu_s=8,
    ),
    Attack(
        "keys: 5,000 different ones from one caller",
        many_keys,
        connections=5_000,
        answers=FLOODED,
        gap_s=1.0,
        wall_s=60,
        cpu_s=25,
    ),
    Attack(
        "keys: 50 of 100 KB", long_keys, connections=50, wall_s=30, answers=frozenset({400, 431})
    ),
    Attack(
        "keys: 300 bodies with one",
        one_key_for_many_bodies,
        connections=300,
        wall_s=30,
        answers=frozenset({200, 409}),
        cpu_s=4,
    ),
    Attack(
        "keys: 200 readers that read nothing", unread_answers, connections=201, wall_s=30, cpu_s=6
    ),
    Attack("keys: a body of 1.9 MB twice", large_bodies, connections=2, wall_s=30),
]
