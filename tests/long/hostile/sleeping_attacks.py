"""Requests for a model that no endpoint serves: they wait in its queue, within bounds."""

from __future__ import annotations

import socket
import time
from functools import partial

from tests.long.hostile.attack import Attack, Reply, Target
from tests.long.hostile.caller import CHAT, TEXT, Body, burst, encoded, message
from tests.long.hostile.connection_attacks import answered, opened, sent
from tests.long.hostile.stand import HELD_S
from tests.long.hostile.structured_attacks import HI

LARGE = "a b " * 470_000  # 1.9 MB
WIDE = LARGE + "\U0001f600"  # Python keeps it with four bytes a character
HELD_MB = 64  # by default; memory is more: a chat's messages, its prompt, and what is just read


def asleep(**fields: object) -> Body:
    return lambda target: {"model": target.asleep, "messages": HI, "max_tokens": 4, **fields}


def large_prompts(target: Target) -> dict[str, object]:
    return {"model": target.asleep, "prompt": LARGE, "max_tokens": 4}


def leave(target: Target) -> list[Reply]:
    """Callers that come and leave while their requests are held, over and over."""
    whole = message(target, encoded(asleep(stream=True)(target)))
    for number in range(20):
        with opened(target, 50) as socks:
            for sock in socks:
                sent(sock, whole)
            time.sleep(0.02 * (number % 5))
    return []


def read_nothing(target: Target) -> list[Reply]:
    """Held streams, whose heads and comments nobody reads."""
    whole = message(target, encoded(asleep(stream=True, n=4)(target)))
    with opened(target, 200) as socks:
        for sock in socks:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sent(sock, whole)
        time.sleep(HELD_S + 1)
        return [answered(sock, 5) for sock in socks]


HELD = frozenset({200, 429, 503})  # a stream's head may come before its refusal
_attack = partial(Attack, answers=HELD, wall_s=60, attacks=(CHAT,), cpu_s=6)
ATTACKS = [
    _attack(
        "asleep: 60 prompts of 1.9 MB",
        burst(large_prompts, TEXT, count=60),
        attacks=(TEXT,),
        growth_mb=6 * HELD_MB,
    ),
    _attack(
        "asleep: 240 chats of 1.9 MB",
        burst(asleep(messages=[{"role": "user", "content": LARGE}]), count=240),
        growth_mb=6 * HELD_MB,
    ),
    _attack(
        "asleep: 240 chats of 1.9 MB with a wide character",
        burst(asleep(messages=[{"role": "user", "content": WIDE}]), count=240),
        cpu_s=12,
        growth_mb=7 * HELD_MB,
    ),
    _attack("asleep: 2,000 requests", burst(asleep(), count=2_000)),
    _attack("asleep: 500 streams of 4 choices", burst(asleep(stream=True, n=4), count=500)),
    _attack("asleep: 1,000 callers that leave", leave, connections=1_000),
    _attack("asleep: 200 streams that nobody reads", read_nothing, connections=200),
]
