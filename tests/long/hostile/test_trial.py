"""The judge itself: a server that holds its loop, grows, or says too much is found out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.fixtures.stack import ROOT
from tests.long.hostile import trial
from tests.long.hostile.arena import Arena
from tests.long.hostile.attack import FINE, Attack, Reply
from tests.long.hostile.bystander import own_gap_s
from tests.long.hostile.caller import post
from tests.long.hostile.catalogue import EVERY


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.long.hostile.holding_server"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    port = int(server.stdout.readline())
    with server, Arena(f"http://127.0.0.1:{port}", [server.pid], timeout_s=2) as made:
        yield made
        server.kill()


def faults(arena: Arena, path: str) -> str:
    attack = Attack(path, post(lambda _: b"", path), answers=FINE, waits_s=0.2)
    return "; ".join(trial.run(attack, arena.target, arena.ready_for(attack)).faults)


def test_a_harmless_request_passes(arena):
    # a busy machine may cost one try, not three
    assert "" in {faults(arena, "/nothing") for _ in range(3)}


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/hold", "gap"),
        ("/hold", "small request"),
        ("/grow", "grew by"),
        ("/leak", "leaks"),
        ("/silent", "status none"),
    ],
)
def test_what_a_server_does_wrong_is_found(arena, path, fault):
    # a busy machine hides a part of it, not three times
    assert any(fault in faults(arena, path) for _ in range(3))


@pytest.mark.parametrize(
    ("waited_s", "machine_s", "ran_s", "own"),
    [(0, 0, 0, 1.0), (0.9, 0, 0.05, 0.1), (0, 0.9, 0.05, 0.1), (0.9, 0.9, 0.6, 0.6)],
)
def test_what_the_machine_took_is_no_gap_but_cpu_of_the_loop_is(waited_s, machine_s, ran_s, own):
    gap = {"length_s": 1.0, "waited_s": waited_s, "machine_s": machine_s, "ran_s": ran_s}
    assert own_gap_s(gap) == pytest.approx(own)


@pytest.mark.parametrize(
    ("wall_s", "cpu_s", "is_fault"),
    [(1, 1.0, False), (1, 1.2, True), (20, 1.9, False), (20, 2.1, True)],
)
def test_what_a_bystander_takes_in_a_long_time_is_no_fault_of_an_attack(wall_s, cpu_s, is_fault):
    nothing = {"length_s": 0.0, "waited_s": 0.0, "machine_s": 0.0, "engine_s": 0.0, "ran_s": 0.0}
    seen = dict.fromkeys(("proxy_growth", "triton_growth", "machine_s", "wrong", "ends"), 0)
    seen |= {"cpu_s": cpu_s, "gap": nothing, "wait": nothing}
    attack = Attack("slow", lambda _: [], answers=FINE, wall_s=30)
    found = trial.judged(attack, [Reply(status=200, wall_s=wall_s)], wall_s, seen).faults
    assert bool(found) == is_fault, found


def test_attacks_have_names_of_their_own():
    assert len({attack.name for attack in EVERY}) == len(EVERY) >= 60
