"""Tenants that compete for the rows of the ONNX demo engine, in tokens.

    .venv/bin/python -m tests.bench.tenant_shares [SECONDS]

Starts `serve` with few rows. Prints the shares of two tenants with 2 and with 200 streams: with two
rows the small one asks for more than half of the tokens, with four for what two rows give. Then the
shares of weights 1 and 3.
"""

from __future__ import annotations

import asyncio
import statistics
import sys

from tests.fixtures.tenant_load import LoadedTenant, loaded, stack

WARM_UP_S = 2.0


async def measure(url: str, seconds: float, *tenants: LoadedTenant) -> None:
    """Fills in the tenants' tokens."""
    async with loaded(url, "demo", tenants):
        await asyncio.sleep(WARM_UP_S)
        for one in tenants:
            one.tokens, one.first_s = 0, []
        await asyncio.sleep(seconds)


def shares(seconds: float, rows: int, *tenants: LoadedTenant) -> None:
    with stack(rows, *tenants) as running:
        asyncio.run(measure(running.url, seconds, *tenants))
    total = sum(one.tokens for one in tenants)
    for one in tenants:
        first = sorted(one.first_s) or [float("nan")]
        sys.stdout.write(
            f"  {one.name:6} {one.streams:4} streams, weight {one.weight:g}: "
            f"{one.tokens / total:6.1%} of {total} tokens, first token p50 "
            f"{statistics.median(first):.3f} s, p99 {first[int(0.99 * (len(first) - 1))]:.3f} s\n"
        )


def main(seconds: float) -> None:
    for rows in (4, 2):
        sys.stdout.write(f"{rows} rows: the small tenant alone, and with the large one\n")
        shares(seconds, rows, LoadedTenant(name="small", streams=2))
        large = LoadedTenant(name="large", streams=200)
        shares(seconds, rows, LoadedTenant(name="small", streams=2), large)
    sys.stdout.write("weights 1 and 3\n")
    three = LoadedTenant(name="three", streams=40, weight=3.0)
    shares(seconds, 4, LoadedTenant(name="one", streams=40), three)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
