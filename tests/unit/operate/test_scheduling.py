"""scheduling: by the cores that a process may run on."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from proxy.operate import scheduling

NORMAL, BATCH = os.SCHED_OTHER, os.SCHED_BATCH


def settled(cores: int) -> int:
    scheduling.apply(lambda _: None, lambda: cores)
    return os.sched_getscheduler(0)


@pytest.mark.parametrize(("cores", "policy"), [(4, BATCH), (5, NORMAL)])
def test_the_kernel_gets_the_policy(cores, policy):
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # this process keeps its own
        assert pool.apply(settled, (cores,)) == policy


def test_a_refusal_is_told():
    def refuse() -> None:
        raise PermissionError("not here")

    said: list[str] = []
    scheduling.apply(said.append, lambda: 2, refuse)
    assert said == ["CPU scheduling stays normal on 2 cores: batch is refused (not here)"]
