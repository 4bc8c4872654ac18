"""The scripts of the Triton images, with stand-ins for kubectl and triton-openai."""

from __future__ import annotations

import http.server
import importlib.util
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from proxy.operate.triton_server import server
from tests.deploy.places import DOCKER
from tests.fixtures.stack import HANG_S, eventually

SCRIPTS = DOCKER / "triton"
spec = importlib.util.spec_from_file_location("wait_idle", SCRIPTS / "wait_idle.py")
wait_idle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wait_idle)

BUSY = 'engine_requests_unfinished{model="a",version="1"} 2'
IDLE = 'engine_requests_unfinished{model="a",version="1"} 0'


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """run(script, *arguments, NAME=value) with stand-ins that note how they were called."""
    for name in ("kubectl", "triton-openai"):
        stand_in = tmp_path / name
        stand_in.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\nexit ${{FAILS:-0}}\n')
        stand_in.chmod(0o755)

    def start(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
        command = [SCRIPTS / script, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=HANG_S
        )

    return start


def calls(tmp_path: Path) -> list[str]:
    noted = tmp_path / "calls"
    return noted.read_text().splitlines() if noted.exists() else []


def group(tmp_path: Path, **others: str) -> dict[str, str]:
    return {
        "LWS_GROUP_SIZE": "3",
        "GPUS_PER_NODE": "8",
        "HOSTNAME": "triton-0",
        "OMPI_MCA_orte_default_hostfile": str(tmp_path / "hosts"),
        **others,
    }


def test_the_leader_waits_for_its_workers_and_tells_mpirun_where_they_are(run, tmp_path):
    assert run("lead", **group(tmp_path)).returncode == 0
    assert calls(tmp_path) == [
        "kubectl wait --for=condition=Ready pod/triton-0-1 --timeout=600s",
        "kubectl wait --for=condition=Ready pod/triton-0-2 --timeout=600s",
        "triton-openai triton",
    ]
    hosts = (tmp_path / "hosts").read_text().split("\n")
    assert hosts == ["triton-0 slots=8", "triton-0-1 slots=8", "triton-0-2 slots=8", ""]


def test_a_worker_that_does_not_come_ends_the_leader(run, tmp_path):
    assert run("lead", **group(tmp_path, FAILS="1")).returncode != 0
    assert "triton-openai triton" not in calls(tmp_path)


@pytest.mark.parametrize("name", ["LWS_GROUP_SIZE", "GPUS_PER_NODE"])
def test_a_leader_that_is_none_says_what_is_missing(run, tmp_path, name):
    result = run("lead", **{**group(tmp_path), name: ""})
    assert result.returncode != 0
    assert name in result.stderr


def test_a_rank_is_started_in_the_workers_container(run, tmp_path):
    result = run("pod-shell", "triton-0-1", "orted", "-mca", "ess 'env'")
    assert result.returncode == 0
    (call,) = calls(tmp_path)
    assert call.startswith("kubectl exec triton-0-1 --container=triton -- /bin/sh -c ")
    assert call.endswith(" sh /bin/sh -c orted -mca ess 'env'")


@pytest.mark.parametrize("has_entry", [True, False])
def test_a_rank_goes_through_the_images_entry_point_if_there_is_one(tmp_path, has_entry):
    """As kubectl would run it in the container; the entry point says that it was there."""
    entry, kubectl = tmp_path / "entry", tmp_path / "kubectl"
    if has_entry:
        entry.write_text('#!/bin/sh\necho entry\nexec "$@"\n')
        entry.chmod(0o755)
    kubectl.write_text('#!/bin/sh\nshift 4\nexec "$@"\n')
    kubectl.chmod(0o755)
    script = (SCRIPTS / "pod-shell").read_text()
    assert "entry=/opt/nvidia/nvidia_entrypoint.sh\n" in script
    script = script.replace("/opt/nvidia/nvidia_entrypoint.sh", str(entry))
    command = ["/bin/sh", "-c", script, "pod-shell", "worker", "echo", "'a  b'", "&&", "echo c"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["entry"] * has_entry + ["a  b", "c"]


@pytest.fixture
def follower() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([SCRIPTS / "follow"])
    eventually(psutil.Process(process.pid).children, 10, "it waits, and hears what it is told")
    yield process
    process.kill()
    process.wait()


def test_a_worker_ends_when_told_as_soon_as_its_ranks_have_ended(follower, tmp_path):
    orted = tmp_path / "orted"
    shutil.copy(shutil.which("sleep"), orted)
    rank = subprocess.Popen([orted, "60"])
    try:
        eventually(lambda: psutil.Process(rank.pid).name() == "orted", 10, "it runs")
        follower.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        assert follower.poll() is None
    finally:
        rank.kill()
        rank.wait()
    assert follower.wait(timeout=HANG_S) == 0


@pytest.fixture
def metrics() -> Iterator[tuple[str, list[str]]]:
    """(url, what is answered): the first of the list, which is taken away while there are more."""
    answers = [IDLE]

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write((answers[0] + "\n").encode())
            if len(answers) > 1:
                answers.pop(0)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/metrics", answers
        server.shutdown()


def test_the_launcher_counts_the_same_requests():
    assert wait_idle.UNFINISHED == server.UNFINISHED


@pytest.mark.parametrize(
    ("given", "at_most_s", "is_idle"),
    [([BUSY, BUSY, IDLE, BUSY, IDLE], 10.0, True), ([BUSY], 0.2, False)],
    ids=["until nothing runs and some seconds more", "until its time is over"],
)
def test_it_waits(metrics, given, at_most_s, is_idle):
    url, answers = metrics
    answers[:] = given
    assert wait_idle.wait(url, at_most_s, quiet_s=0.1, every_s=0.01) is is_idle
    assert len(answers) == 1


def test_a_triton_that_is_gone_is_idle():
    assert wait_idle.wait("http://127.0.0.1:1/metrics", 10.0)
