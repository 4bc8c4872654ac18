"""Workers that die and are started again: their counts stay, their gauges go, files do not grow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.stack import HANG_S, ROOT, eventually
from triton_openai.proxy.telemetry import worker_slot
from triton_openai.proxy.telemetry.distribution_metrics import TTFT
from triton_openai.proxy.telemetry.exposition import Exposition
from triton_openai.proxy.telemetry.metrics import Metrics

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(slot, restarts) -> a process that counts."""
    with ExitStack() as stack:

        def begun(slot: int, restarts: int = 1) -> subprocess.Popen[str]:
            module = "tests.fixtures.counting_worker"
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(slot), str(tmp_path), str(restarts)],
                cwd=ROOT,
                env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield begun


def values(folder: Path) -> dict[str, float]:
    """Each sample with one label or two, by its name and the last label's value."""
    text, _ = Exposition(Metrics(folder)).exposed("")
    return {
        " ".join((sample.name, *list(sample.labels.values())[-1:])): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def has_counted(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "counted\n"


def waits_for_a_lock(pid: int) -> bool:
    locks = Path("/proc/locks").read_text().splitlines()
    return any(" -> " in line and f" {pid} " in line for line in locks)


def test_what_a_killed_worker_counted_stays_and_what_it_ran_does_not(start, tmp_path):
    first, other = start(0), start(1)
    assert has_counted(first)
    assert has_counted(other)
    found = values(tmp_path)
    assert (found["proxy_requests_total stop"], found["proxy_requests_active demo"]) == (2, 2)
    first.kill()
    first.wait(HANG_S)
    worker_slot.vacate(0, tmp_path)
    found = values(tmp_path)
    assert (found["proxy_requests_total stop"], found["proxy_requests_active demo"]) == (2, 1)
    assert has_counted(start(0))
    found = values(tmp_path)
    assert (found["proxy_requests_total stop"], found["proxy_requests_active demo"]) == (3, 2)
    assert found["proxy_request_duration_seconds_count demo"] == 3


def test_a_slot_is_never_taken_by_two_processes(start, tmp_path):
    first = start(0)
    assert has_counted(first)
    second = start(0)
    eventually(lambda: waits_for_a_lock(second.pid), HANG_S, "the second one waits")
    assert values(tmp_path)["proxy_requests_total stop"] == 1
    first.kill()
    assert has_counted(second)
    assert values(tmp_path)["proxy_requests_total stop"] == 2


def test_a_thousand_restarts_leave_no_more_files_and_no_more_series_than_a_few(start, tmp_path):
    assert has_counted(start(0, restarts=10))
    files, series = sorted(each.name for each in tmp_path.iterdir()), len(values(tmp_path))
    sizes = sum(each.stat().st_size for each in tmp_path.iterdir())
    assert has_counted(start(1, restarts=1000))
    found = values(tmp_path)
    assert found["proxy_requests_total stop"] == 1010
    assert found["proxy_requests_active demo"] == 2, "that of the last one in each slot"
    names = {
        each.name.replace("_1.db", "_0.db").replace("-1.", "-0.") for each in tmp_path.iterdir()
    }
    assert sorted(names) == files
    assert len(found) == series
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 2 * sizes
    tenants = {key for key in found if key.startswith("proxy_tenant_prompt_tokens_total")}
    assert len(tenants) == 5 + 1, "the first five, and all others together"


def test_a_process_adds_its_own_exemplars_to_the_counts_of_all(start, tmp_path):
    assert has_counted(start(0))
    metrics = Metrics(tmp_path)
    metrics.exemplars.note(TTFT, "demo", 0.01, 7)
    text, _ = Exposition(metrics).exposed("application/openmetrics-text")
    [line] = [line for line in text.decode().splitlines() if " # {" in line]
    assert line.startswith(f'{TTFT}_bucket{{le="0.01",model="demo"}} 1.0 # {{trace_id="')
