"""Tenants that compete for the rows of the ONNX demo engine, in tokens.

    .venv/bin/python -m tests.bench.tenant_shares [SECONDS]

Starts `serve` with few rows. Prints the shares of two tenants with 2 and with 200 streams: with two
rows the small one asks for more than half of the tokens, with four for what two rows give. Then the
shares of weights 1 and 3, and the throughput with the queue and with an unlimited engine queue, in
runs that alternate.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.fixtures.stack import ROOT, Stack, free_ports
from tests.fixtures.tenant_load import PEPPER, LoadedTenant, loaded, store_tenants

ARTIFACTS = ROOT / "artifacts" / "bench" / "fair"
WARM_UP_S, ROUNDS = 2.0, 5
WEIGHTS = ROOT / "demo_model" / "shipped"


@contextmanager
def stack(
    rows: int,
    *tenants: LoadedTenant,
    weights: Path = WEIGHTS,
    joins_tokens: bool = True,
    **settings: str,
) -> Iterator[Stack]:
    """`serve` with keys for these tenants.

    weights: of the model `demo`. joins_tokens: as usual. The engine joins the more tokens in a
    response the more streams it has; throughput with a short and a long engine queue is compared
    without that.
    """
    artifacts = ARTIFACTS / f"{weights.name}-{rows}-rows{'' if joins_tokens else '-single'}"
    artifacts.mkdir(parents=True, exist_ok=True)
    model = {"weights": str(weights), "onnx": {"threads": 1, "max_rows": rows}}
    model |= {} if joins_tokens else {"hold_ms": 0}
    file = artifacts / "models.yaml"
    file.write_text(yaml.safe_dump({"models": {"demo": model}}))
    with TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        asyncio.run(store_tenants(store, tenants))
        environment = free_ports()
        environment |= {"MODELS_FILE": str(file), "ARTIFACTS_DIR": str(artifacts)}
        environment |= {"KEY_PEPPER": PEPPER, "STORE_URL": store, "QUEUE_LENGTH": "1000"}
        started = Stack(["serve"], environment | settings, Path(folder) / "serve.log")
        try:
            started.wait_ready(within_s=120)
            yield started
        finally:
            started.stop()


async def measure(running: Stack, seconds: float, *tenants: LoadedTenant) -> float:
    """Fills in the tenants' tokens; returns tokens a second."""
    async with loaded(running.url, "demo", tenants):
        await asyncio.sleep(WARM_UP_S)
        for one in tenants:
            one.tokens, one.first_s = 0, []
        await asyncio.sleep(seconds)
        return sum(one.tokens for one in tenants) / seconds


def shares(seconds: float, rows: int, *tenants: LoadedTenant) -> None:
    with stack(rows, *tenants) as running:
        asyncio.run(measure(running, seconds, *tenants))
    total = sum(one.tokens for one in tenants)
    for one in tenants:
        first = sorted(one.first_s) or [float("nan")]
        sys.stdout.write(
            f"  {one.name:6} {one.streams:4} streams, weight {one.weight:g}: "
            f"{one.tokens / total:6.1%} of {total} tokens, first token p50 "
            f"{statistics.median(first):.3f} s, p99 {first[int(0.99 * (len(first) - 1))]:.3f} s\n"
        )


def throughput(seconds: float) -> None:
    found: dict[str, list[float]] = {"fair": [], "none": []}
    tenants = {name: LoadedTenant(name="all", streams=32) for name in found}
    with ExitStack() as running:
        stacks = {
            name: running.enter_context(
                stack(4, tenant, joins_tokens=False, SCHEDULING=name, GENERATIONS_PER_ROW="1000")
            )
            for name, tenant in tenants.items()
        }
        for _ in range(ROUNDS):
            for name, rates in found.items():
                rates.append(asyncio.run(measure(stacks[name], seconds, tenants[name])))
    for name, rates in found.items():
        listed = ", ".join(f"{rate:.0f}" for rate in rates)
        sys.stdout.write(f"  {name}: {statistics.median(rates):.1f} tokens/s ({listed})\n")


def main(seconds: float) -> None:
    for rows in (4, 2):
        sys.stdout.write(f"{rows} rows: the small tenant alone, and with the large one\n")
        shares(seconds, rows, LoadedTenant(name="small", streams=2))
        large = LoadedTenant(name="large", streams=200)
        shares(seconds, rows, LoadedTenant(name="small", streams=2), large)
    sys.stdout.write("weights 1 and 3\n")
    three = LoadedTenant(name="three", streams=40, weight=3.0)
    shares(seconds, 4, LoadedTenant(name="one", streams=40), three)
    sys.stdout.write("throughput with the queue, and without\n")
    throughput(seconds)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
