"""How the processes of a running stack are scheduled."""

from __future__ import annotations

import os

import psutil

from proxy.operate.run import FEW_CORES


def test_on_few_cores_a_wake_up_takes_no_core_from_another_process(scripted_stack):
    server = scripted_stack.tritonserver()
    processes = [psutil.Process(scripted_stack.process.pid), server]
    processes += server.children(recursive=True)
    wanted = os.SCHED_BATCH if len(os.sched_getaffinity(0)) <= FEW_CORES else os.SCHED_OTHER
    threads = [thread.id for process in processes for thread in process.threads()]
    assert {os.sched_getscheduler(thread) for thread in threads} == {wanted}
