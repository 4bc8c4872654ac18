"""Throughput of the ONNX demo engine with the fair queue, against an unlimited engine queue.

    .venv/bin/python -m tests.bench.queue_throughput [ROWS] [SECONDS] [ROUNDS] [LENGTHS]

LENGTHS: of answers in tokens, such as 64,128,256; each answer has one of them, by chance. One
`serve` for each way, all at once; runs alternate. For each it prints the medians of tokens a second
and of rows in use a decode step, which a busy machine changes less, and both by round. Each
token is a response of its own.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from tests.bench.tenant_shares import measure, stack
from tests.fixtures.stack import Stack
from tests.fixtures.tenant_load import LoadedTenant

STREAMS_A_ROW = 6
Run = tuple[float, float]


def ways(rows: int) -> dict[str, dict[str, str]]:
    """By name, the settings of `serve`."""
    fixed = {f"{spare} spare": {"SPARE_STREAMS": str(spare)} for spare in (1, 2, rows)}
    none = {"SCHEDULING": "none", "GENERATIONS_PER_ROW": "1000"}
    return {"no fair queue": none, "as configured": {}} | fixed


def run(running: Stack, seconds: float, tenant: LoadedTenant) -> Run:
    """Tokens a second; rows in use at a decode step, in the mean."""
    before = running.engine("demo")
    rate = asyncio.run(measure(running, seconds, tenant))
    after = running.engine("demo")
    steps, tokens = (after[name] - before[name] for name in ("decode_steps", "decode_tokens"))
    return rate, tokens / steps


def measured(
    rows: int, seconds: float, rounds: int, lengths: Sequence[int]
) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {name: [] for name in ways(rows)}
    with ExitStack() as entered:
        stacks: dict[str, tuple[Stack, LoadedTenant]] = {}
        for name, settings in ways(rows).items():
            tenant = LoadedTenant(name="all", streams=STREAMS_A_ROW * rows, lengths=lengths)
            stacks[name] = (
                entered.enter_context(stack(rows, tenant, joins_tokens=False, **settings)),
                tenant,
            )
        for _ in range(rounds):
            for name, (running, tenant) in stacks.items():
                found[name].append(run(running, seconds, tenant))
    return found


def main(rows: int = 4, seconds: float = 8.0, rounds: int = 5, lengths: str = "64,128,256") -> None:
    found = measured(rows, seconds, rounds, [int(one) for one in lengths.split(",")])
    baseline = statistics.median(rate for rate, _ in found["no fair queue"])
    for name, runs in found.items():
        rate, busy = (statistics.median(one) for one in zip(*runs, strict=True))
        listed = ", ".join(f"{one:.0f}/{in_use:.2f}" for one, in_use in runs)
        sys.stdout.write(
            f"{name:14} {rate:7.1f} tokens/s ({rate / baseline - 1:+.1%}), "
            f"{busy:.2f} of {rows} rows in use ({listed})\n"
        )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        int(given[0]) if given else 4,
        float(given[1]) if len(given) > 1 else 8.0,
        int(given[2]) if len(given) > 2 else 5,
        given[3] if len(given) > 3 else "64,128,256",
    )
