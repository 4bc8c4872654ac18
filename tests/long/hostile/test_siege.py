"""The siege's callers: honest streams are counted and measured, attackers keep their rate."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.fixtures.stack import ROOT
from tests.long.hostile import siege
from tests.long.hostile.attack import Target
from tests.long.hostile.attackers import SHARE_AT_MOST, Attackers
from tests.long.hostile.catalogue import EVERY
from tests.long.hostile.processes import Processes

STREAMS, TOKENS, SECONDS = 3, 20, 2


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Target, Processes]]:
    command = [sys.executable, "-m", "tests.long.hostile.holding_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        port = int(process.stdout.readline())
        yield Target(host="127.0.0.1", port=port, timeout_s=2), Processes((process.pid,))
        process.kill()


@pytest.fixture
def given() -> argparse.Namespace:
    return argparse.Namespace(
        seconds=SECONDS,
        rate=0,
        streams=STREAMS,
        tokens=TOKENS,
        seed=1,
        settle_s=0.1,
    )


def test_honest_streams_are_begun_anew_and_measured(server, given):
    found = siege.besieged(given, *server)
    honest = found["honest"]
    assert honest["started"] == honest["finished"] > STREAMS
    assert honest["tokens"] == honest["finished"] * TOKENS
    assert honest["failed"] == honest["refused"] == 0
    assert 15 < honest["median_gap_ms"] <= honest["p99_gap_ms"] <= honest["largest_gap_ms"]
    assert found["is_alive"]
    printed = siege.text(found, found)
    assert f"tokens_per_s {honest['tokens_per_s']}" in " ".join(printed.split())


def test_honest_streams_that_end_early_are_failures(server, given):
    target, watched = server
    closed = Target(host=target.host, port=1)
    honest = siege.besieged(given, closed, watched)["honest"]
    assert honest["finished"] == 0
    assert honest["failed"] == honest["started"] >= STREAMS
    assert "ConnectionRefused" in honest["failures"][0]


def test_attackers_keep_their_rate_over_all_kinds():
    attackers = Attackers(Target(host="127.0.0.1", port=1, timeout_s=1), seed=1)
    attackers.run(rate=100, seconds=2)
    assert 100 <= attackers.requests <= 200 + SHARE_AT_MOST * 100
    names = [attackers.next_attack(20).name for _ in range(2 * len(EVERY))]
    small = {attack.name for attack in EVERY if attack.requests <= SHARE_AT_MOST * 20}
    assert small <= {*names}
