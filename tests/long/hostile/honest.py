"""Honest callers of the siege: streams that begin anew when they end, in a process of their own.

usage: python -m tests.long.hostile.honest < plan.json      prints Honest as JSON at the end

The plan: target, streams, seconds, tokens (of each stream).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.long.hostile.attack import Target
from tests.long.hostile.caller import message, status_of

SILENCE_S = 60.0
RETRY_S = 1.0  # where the server does not say when


@dataclass(slots=True)
class Honest:
    """gaps_s: all gaps between the arrivals of one stream; only figures of them leave here."""

    started: int = 0
    finished: int = 0
    tokens: int = 0
    refused: int = 0  # 429 and 503, tried again
    failures: list[str] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    first_token_s: list[float] = field(default_factory=list)

    def figures(self, wall_s: float) -> dict[str, Any]:
        found = asdict(self)
        gaps, firsts = sorted(found.pop("gaps_s")), sorted(found.pop("first_token_s"))
        return {
            **found,
            "failures": self.failures[:10],
            "failed": len(self.failures),
            "tokens_per_s": round(self.tokens / wall_s, 1),
            "largest_gap_ms": _ms(gaps[-1:]),
            "p99_gap_ms": _ms(gaps[int(len(gaps) * 0.99) :]),
            "median_gap_ms": _ms(gaps[len(gaps) // 2 :]),
            "p99_first_token_ms": _ms(firsts[int(len(firsts) * 0.99) :]),
        }


def _ms(values: list[float]) -> float:
    return round(values[0] * 1000, 1) if values else 0.0


async def keep_asking(target: Target, body: bytes, ends_at: float, honest: Honest) -> None:
    while time.monotonic() < ends_at:
        honest.started += 1
        try:
            wait_s = await asyncio.wait_for(_ask(target, body, honest), SILENCE_S + 600)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            honest.failures.append(f"{type(error).__name__}: {error}")
            wait_s = RETRY_S
        await asyncio.sleep(wait_s)


async def _ask(target: Target, body: bytes, honest: Honest) -> float:
    """Seconds to wait before the next stream."""
    local = (target.source, 0) if target.source else None
    reader, writer = await asyncio.open_connection(*target.address, local_addr=local)
    try:
        began = time.monotonic()
        writer.write(message(target, body))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SILENCE_S)
        status = status_of(head)
        if status in (429, 503):
            honest.refused += 1
            honest.started -= 1
            return _retry_after_s(head)
        if status != 200:
            rest = await asyncio.wait_for(reader.read(), SILENCE_S)
            honest.failures.append(f"status {status}: {rest[:200]!r}")
            return RETRY_S
        await _read(reader, began, honest)
        return 0.0
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, began: float, honest: Honest) -> None:
    before, tail = None, b""
    while part := await asyncio.wait_for(reader.read(65_536), SILENCE_S):
        now = time.monotonic()
        if found := part.count(b'"content":"'):
            honest.tokens += found
            if before is None:
                honest.first_token_s.append(now - began)
            else:
                honest.gaps_s.append(now - before)
            before = now
        tail = (tail + part)[-3_000:]
    if b"[DONE]" in tail and b'"error"' not in tail:
        honest.finished += 1
    else:
        honest.failures.append(f"ended with {tail[-200:]!r}")


def _retry_after_s(head: bytes) -> float:
    for line in head.decode("latin-1").lower().split("\r\n"):
        if line.startswith("retry-after:"):
            return min(30.0, float(line.partition(":")[2]))
    return RETRY_S


async def main() -> None:
    plan = json.load(sys.stdin)
    target, honest = Target(**plan["target"]), Honest()
    asked = {
        "model": target.steady,
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": plan["tokens"],
        "stream": True,
    }
    began = time.monotonic()
    body, ends_at = json.dumps(asked).encode(), began + plan["seconds"]
    streams = [keep_asking(target, body, ends_at, honest) for _ in range(plan["streams"])]
    await asyncio.gather(*streams)
    sys.stdout.write(json.dumps(honest.figures(time.monotonic() - began)))


if __name__ == "__main__":
    asyncio.run(main())
