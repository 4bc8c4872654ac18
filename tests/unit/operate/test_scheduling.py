"""scheduling: by the cores that a process may run on."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from proxy.operate import scheduling
from proxy.operate.scheduling import Kernel

NORMAL, BATCH = os.SCHED_OTHER, os.SCHED_BATCH


class OfCores(Kernel):
    """This kernel, with so many cores."""

    def __init__(self, cores: int) -> None:
        self._cores = cores

    @property
    def cores(self) -> int:
        return self._cores


class ScriptedKernel(OfCores):
    """May refuse. `is_batch`: it was set."""

    def __init__(self, cores: int, error: OSError | None = None) -> None:
        super().__init__(cores)
        self._error = error
        self.is_batch = False

    def set_batch(self) -> None:
        if self._error is not None:
            raise self._error
        self.is_batch = True


def settled(cores: int) -> int:
    scheduling.apply(lambda _: None, OfCores(cores))
    return os.sched_getscheduler(0)


@pytest.mark.parametrize(("cores", "policy"), [(4, BATCH), (5, NORMAL)])
def test_the_kernel_gets_the_policy(cores, policy):
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # this process keeps its own
        assert pool.apply(settled, (cores,)) == policy


@pytest.mark.parametrize(("cores", "asked"), [(1, True), (4, True), (5, False)])
def test_batch_on_few_cores(cores, asked):
    kernel = ScriptedKernel(cores)
    scheduling.apply(lambda _: None, kernel)
    assert kernel.is_batch is asked


def test_a_refusal_is_told():
    kernel, said = ScriptedKernel(2, PermissionError("not here")), list[str]()
    scheduling.apply(said.append, kernel)
    assert said == ["CPU scheduling stays normal on 2 cores: batch is refused (not here)"]
