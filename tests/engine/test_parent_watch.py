"""parent_watch: stubs end with their server, also while one of their threads hangs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import psutil

import parent_watch
from tests.fixtures.stack import eventually

MODEL = Path(__file__).parents[2] / "model_repository" / "engine" / "1"
STUB = f"""
import ctypes, sys
sys.path.append({str(MODEL)!r})
import parent_watch
watch = parent_watch.start()
print("waits", flush=True)
ctypes.PyDLL(None).sleep(3000)  # keeps the GIL
"""
# Another model's stub has no watch of its own. The server's pid is where Triton writes it.
NEIGHBOR = "import time; print(1, flush=True); time.sleep(3000)"
# One with an engine that it has forked, which has its command line.
FORKED = "import os, time; os.fork() and print(1, flush=True); time.sleep(3000)"
# As in Triton, a thread that ends starts the stub: PR_SET_PDEATHSIG would end the stub with it.
SERVER = """
import os, subprocess, sys, threading
def start():
    stub = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
    stub.stdout.readline()
    command = [sys.executable, "-c", sys.argv[2], "region", "size", str(os.getpid())]
    neighbor = subprocess.Popen(command, stdout=subprocess.PIPE)
    neighbor.stdout.readline()
    print(stub.pid, neighbor.pid, flush=True)
thread = threading.Thread(target=start)
thread.start()
thread.join()
sys.stdin.read()
"""


def test_hanging_stubs_end_when_their_server_is_killed_and_not_before():
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, STUB, NEIGHBOR],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with server:
        stubs = [psutil.Process(int(pid)) for pid in server.stdout.readline().split()]
        assert len(stubs) == 2
        assert all(stub.is_running() for stub in stubs)
        server.kill()

    def have_ended() -> bool:
        return all(map(has_ended, stubs))

    eventually(have_ended, 5, "the stubs have ended")


STUB_WITH_ENGINE = f"""
import subprocess, sys, time
sys.path.append({str(MODEL)!r})
import parent_watch
command = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
engine = subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE)
watch = parent_watch.start()
print("waits", flush=True)
time.sleep(3000)
"""


def test_the_processes_of_a_stub_end_with_it_while_its_server_lives():
    """They do not end by themselves, and hold the GPU's memory: vLLM's engine is one."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, STUB_WITH_ENGINE, FORKED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with server:
        pids = server.stdout.readline().split()
        stub, neighbor = (psutil.Process(int(pid)) for pid in pids)
        eventually(lambda: len(engines(stub)) == 2, 5, "an engine and its worker")
        started = engines(stub)
        (forked,) = neighbor.children()
        time.sleep(4 * parent_watch.POLL_S)  # it has to start, and to look once
        stub.kill()
        eventually(lambda: all(map(has_ended, started)), 5, "its processes have ended")
        time.sleep(parent_watch.POLL_S)
        assert not has_ended(neighbor)
        assert not has_ended(forked), "another model's engine, which is no orphan"
        neighbor.kill()
        forked.kill()
        server.kill()


def engines(stub: psutil.Process) -> list[psutil.Process]:
    found = []
    for one in stub.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that is just starting has no command line
            if "parent_watch" not in str(one.cmdline()):
                found.append(one)
    return found


def has_ended(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True
