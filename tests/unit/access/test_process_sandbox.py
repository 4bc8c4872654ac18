"""Calls in child processes: results, errors, limits, and one call of each tenant at a time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from proxy.access.process_sandbox import MB, ProcessSandbox
from proxy.domain.errors import RateLimited
from proxy.domain.identity import ANYONE, Caller, current_caller
from proxy.domain.sandbox import TooCostly
from tests.fixtures.limits import caller

ROOT = Path(__file__).parents[2]


def double(number: int) -> int:
    return 2 * number


def fail(reason: str) -> None:
    raise ValueError(reason)


def burn() -> None:
    while True:
        pass


def fill(megabytes: int) -> int:
    return len(bytearray(megabytes * MB))


def meet(folder: Path, me: str, other: str) -> tuple[float, float]:
    began = time.monotonic()
    (folder / me).touch()
    while not (folder / other).exists():
        time.sleep(0.01)
    return began, time.monotonic()


def stamp(seconds: float) -> tuple[float, float]:
    began = time.monotonic()
    time.sleep(seconds)
    return began, time.monotonic()


def stamped_process_id(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def child_ids() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def run(scenario) -> object:
    return asyncio.run(scenario)


def test_what_the_function_raises_is_raised_here():
    with pytest.raises(ValueError, match="because"):
        run(ProcessSandbox().run("a", fail, "because"))


def test_a_call_over_its_cpu_time_is_ended_and_the_next_one_runs():
    async def scenario():
        sandbox = ProcessSandbox(cpu_s=0.2)
        with pytest.raises(TooCostly, match=r"0\.2 s"):
            await sandbox.run("a", burn)
        return await sandbox.run("a", double, 1)

    assert run(scenario()) == 2


def test_a_call_over_its_memory_is_ended_and_the_next_one_runs():
    async def scenario():
        sandbox = ProcessSandbox(memory_bytes=100 * MB)
        with pytest.raises(TooCostly, match="100 MB"):
            await sandbox.run("a", fill, 200)
        return await sandbox.run("a", fill, 20)

    assert run(scenario()) == 20 * MB


def as_caller(sandbox, who: Caller, name: str, *call) -> asyncio.Task:
    current_caller.set(who)
    return asyncio.ensure_future(sandbox.run(name, *call))


@pytest.mark.parametrize(
    ("one", "two", "three"),
    [
        ((ANYONE, "a"), (ANYONE, "a"), (ANYONE, "b")),
        # the keys of one tenant
        ((caller("t", "1"), "t/1"), (caller("t", "2"), "t/2"), (caller("u", "1"), "u/1")),
    ],
)
def test_a_tenant_takes_turns_with_itself_and_not_with_others(tmp_path, one, two, three):
    async def scenario():
        sandbox = ProcessSandbox(processes=3)
        first = as_caller(sandbox, *one, meet, tmp_path, "first", "other")
        second = as_caller(sandbox, *two, stamp, 0)
        other = as_caller(sandbox, *three, meet, tmp_path, "other", "first")
        return await asyncio.gather(first, second, other)

    first, second, _ = run(scenario())  # the two that meet run at the same time, or for ever
    assert second[0] >= first[1]


@pytest.mark.parametrize(("name", "said"), [("a", "of yours"), ("b", "server is busy")])
def test_a_call_that_waits_too_long_is_sent_again_later_and_not_too_costly(tmp_path, name, said):
    async def scenario():
        sandbox = ProcessSandbox(processes=1, patience_s=0.5)
        await sandbox.start()
        held = as_caller(sandbox, ANYONE, "a", meet, tmp_path, "held", "end")
        for _ in range(3):
            await asyncio.sleep(0)  # until it has the lock and the child
        with pytest.raises(RateLimited, match=said):
            await sandbox.run(name, double, 1)
        (tmp_path / "end").touch()
        await held
        return await sandbox.run(name, double, 2)

    assert run(scenario()) == 4


def test_a_caller_may_have_so_many_calls_waiting():
    async def scenario():
        sandbox = ProcessSandbox(waiting=2)
        calls = [asyncio.ensure_future(sandbox.run("a", double, n)) for n in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(RateLimited):
            await sandbox.run("a", double, 2)
        return await asyncio.gather(*calls)

    assert run(scenario()) == [0, 2]


def test_a_caller_that_leaves_frees_its_turn_when_its_call_has_ended():
    async def scenario():
        sandbox = ProcessSandbox()
        call = asyncio.ensure_future(sandbox.run("a", stamp, 0.3))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await sandbox.run("a", double, 4)

    assert run(scenario()) == 8


UNGUARDED = """
import asyncio
from proxy.access.process_sandbox import ProcessSandbox

if __name__ != "__main__":
    raise SystemError("a child imports this")

async def scenario():
    sandbox = ProcessSandbox()
    await sandbox.start()
    try:
        await sandbox.run("a", abs, -1)
    except Exception as error:
        print(type(error).__name__)

asyncio.run(scenario())
"""


def test_a_child_that_does_not_start_is_no_callers_fault(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(UNGUARDED)
    command = [sys.executable, str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "BrokenWorkerProcess"
    assert "the sandbox cannot start" in done.stdout


def test_a_start_makes_all_children_and_calls_start_no_other():
    async def scenario():
        sandbox, others = ProcessSandbox(processes=3), child_ids()
        await sandbox.start()
        children = child_ids() - others
        calls = [sandbox.run(f"{number}", stamped_process_id, 0.2) for number in range(3)]
        return children, await asyncio.gather(*calls)

    children, used = run(scenario())
    assert len(children) == 3
    assert set(used) == children
