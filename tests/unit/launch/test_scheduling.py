"""scheduling: what is asked for, and `auto` by the cores that a process may run on."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from triton_openai.proxy.launch import scheduling
from triton_openai.proxy.processes.errors import LaunchError
from triton_openai.proxy.setting_groups import CpuScheduling

NORMAL, BATCH = os.SCHED_OTHER, os.SCHED_BATCH


def refuse() -> None:
    raise PermissionError("not here")


def settled(wanted: CpuScheduling) -> int:
    scheduling.apply(wanted, lambda _: None)
    return os.sched_getscheduler(0)


def in_a_process(wanted: CpuScheduling) -> int:
    """This process keeps its own policy."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(settled, (wanted,))


@pytest.mark.parametrize(("wanted", "policy"), [("batch", BATCH), ("normal", NORMAL)])
def test_what_is_asked_for(wanted, policy):
    assert in_a_process(wanted) == policy


@pytest.mark.parametrize(("cores", "asked"), [(1, True), (4, True), (5, False)])
def test_auto_is_batch_on_few_cores(monkeypatch, cores, asked):
    calls: list[None] = []
    monkeypatch.setattr(scheduling, "_cores", lambda: cores)
    monkeypatch.setattr(scheduling, "_batch", lambda: calls.append(None))
    scheduling.apply("auto", lambda _: None)
    assert bool(calls) is asked


def test_a_refusal_is_told(monkeypatch):
    monkeypatch.setattr(scheduling, "_cores", lambda: 2)
    monkeypatch.setattr(scheduling, "_batch", refuse)
    said: list[str] = []
    scheduling.apply("auto", said.append)
    assert said == ["CPU scheduling stays normal on 2 cores: batch is refused (not here)"]
    with pytest.raises(LaunchError, match="CPU_SCHEDULING=batch: the system refuses it"):
        scheduling.apply("batch", said.append)
