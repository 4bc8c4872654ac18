"""Two real vLLM engines lose stubs, servers and callers, and hang: streams stay right, and nothing
is left behind. SOAK_SECONDS=600 is two hours' worth of faults; without it each kind comes once.
"""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.fixtures.pool_load import Callers
from tests.fixtures.stack import eventually
from tests.long.soak.soak import total
from tests.long.vllm.fault_rounds import FAULTS, Rounds
from tests.long.vllm.own import VLLM, vllm_processes

SOAK_S = int(os.environ.get("SOAK_SECONDS", "0"))
pytestmark = [
    pytest.mark.xdist_group("own_vllm"),
    pytest.mark.timeout(3600),
]

ROUND_S = 30  # about
ROUNDS = max(len(FAULTS), SOAK_S // ROUND_S)
IDLE = ("requests_unfinished", "requests_waiting", "rows_decoding", "kv_used_blocks")


def test_rounds_of_faults_leave_right_answers_and_nothing_behind(pair):
    async def run() -> Rounds:
        callers = Callers(pair.proxy, VLLM, events=20)
        async with callers.client:
            rounds = Rounds(pair, callers)
            await rounds.learn()
            before = await rounds.continued()
            async with rounds.load():
                for number in range(ROUNDS):
                    await rounds.round(number)
            rounds.counts["continued"] = await rounds.continued() - before
        return rounds

    processes = [len(vllm_processes(one)) for one in pair.tritons]
    rounds = asyncio.run(run())
    sys.stdout.write(f"{dict(rounds.counts)}\n")
    assert not rounds.failures
    assert rounds.counts["continued"] >= ROUNDS
    eventually(lambda: not under_way(pair), 20, f"idle: {under_way(pair)}")
    assert [len(vllm_processes(one)) for one in pair.tritons] == processes


def under_way(pair) -> dict[str, float]:
    """All that is not zero of what must be."""
    found = {
        f"{name} of {one.port}": value
        for one in pair.tritons
        for name, value in one.engine(VLLM).items()
        if name in IDLE
    }
    for one in pair.tritons:
        triton = f"http://127.0.0.1:{one.triton_metrics_port}/metrics"
        pending = total(triton, "nv_inference_pending_request_count")
        found[f"requests of Triton {one.port}"] = pending
    return {name: value for name, value in found.items() if value}
