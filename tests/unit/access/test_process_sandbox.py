"""Calls in child processes: results, errors and limits."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from proxy.access.process_sandbox import MB, ProcessSandbox
from proxy.domain.errors import RateLimited
from proxy.domain.sandbox import TooCostly


def burn() -> None:
    while True:
        pass


def fill(megabytes: int) -> int:
    return len(bytearray(megabytes * MB))


@pytest.mark.parametrize(
    ("limit", "costly", "said"),
    [
        ({"cpu_s": 0.2}, (burn,), r"0\.2 s"),
        ({"memory_bytes": 100 * MB}, (fill, 200), "100 MB"),
    ],
)
def test_a_call_over_its_limit_is_ended_and_the_next_one_runs(limit, costly, said):
    async def scenario():
        sandbox = ProcessSandbox(**limit)
        with pytest.raises(TooCostly, match=said):
            await sandbox.run("a", *costly)
        return await sandbox.run("a", fill, 20)

    assert asyncio.run(scenario()) == 20 * MB


def test_a_call_that_waits_too_long_for_a_child_is_sent_again_later_and_not_too_costly():
    async def scenario():
        sandbox = ProcessSandbox(processes=1, patience_s=0.5)
        await sandbox.start()
        held = asyncio.ensure_future(sandbox.run("a", time.sleep, 2))
        await asyncio.sleep(0)
        with pytest.raises(RateLimited, match="server is busy"):
            await sandbox.run("b", abs, 1)
        await held
        return await sandbox.run("b", abs, -2)

    assert asyncio.run(scenario()) == 2


def test_a_caller_that_leaves_frees_its_turn_when_its_call_has_ended():
    async def scenario():
        sandbox = ProcessSandbox()
        call = asyncio.ensure_future(sandbox.run("a", time.sleep, 0.3))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return await sandbox.run("a", abs, -4)

    assert asyncio.run(scenario()) == 4


def test_a_child_has_imported_only_what_calls_need(monkeypatch):
    monkeypatch.setitem(vars(sys.modules["__main__"]), "__file__", __file__)

    async def scenario():
        sandbox = ProcessSandbox(processes=1)
        await sandbox.start()
        return await sandbox.run("a", eval, "[*__import__('sys').modules]")

    found = set(asyncio.run(scenario()))
    assert {"proxy.language.prompting.chat_template", "jsonschema_rs"} <= found
    unused = {"pytest", "typer", "structlog", "psutil", "pydantic", "proxy.access.process_sandbox"}
    assert not found & unused
