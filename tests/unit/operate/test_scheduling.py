"""scheduling: what is asked for, and `auto` by the cores that a process may run on."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from proxy.operate import scheduling
from proxy.operate.scheduling import Kernel
from proxy.processes.errors import LaunchError
from proxy.settings.listening import CpuScheduling

NORMAL, BATCH = os.SCHED_OTHER, os.SCHED_BATCH


class ScriptedKernel(Kernel):
    """Has so many cores, and may refuse. `is_batch`: it was set."""

    def __init__(self, cores: int, error: OSError | None = None) -> None:
        self._cores = cores
        self._error = error
        self.is_batch = False

    @property
    def cores(self) -> int:
        return self._cores

    def set_batch(self) -> None:
        if self._error is not None:
            raise self._error
        self.is_batch = True


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
def test_auto_is_batch_on_few_cores(cores, asked):
    kernel = ScriptedKernel(cores)
    scheduling.apply("auto", lambda _: None, kernel)
    assert kernel.is_batch is asked


def test_a_refusal_is_told():
    kernel, said = ScriptedKernel(2, PermissionError("not here")), list[str]()
    scheduling.apply("auto", said.append, kernel)
    assert said == ["CPU scheduling stays normal on 2 cores: batch is refused (not here)"]
    with pytest.raises(LaunchError, match="CPU_SCHEDULING=batch: the system refuses it"):
        scheduling.apply("batch", said.append, kernel)
