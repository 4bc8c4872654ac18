"""parent_watch: a stub ends with its server, also while one of its threads keeps the GIL."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil

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
# As in Triton, a thread that ends starts the stub: PR_SET_PDEATHSIG would end the stub with it.
SERVER = """
import subprocess, sys, threading
def start():
    stub = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
    stub.stdout.readline()
    print(stub.pid, flush=True)
thread = threading.Thread(target=start)
thread.start()
thread.join()
sys.stdin.read()
"""


def test_a_stub_that_waits_ends_when_its_server_is_killed_and_not_before():
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, STUB], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with server:
        stub = psutil.Process(int(server.stdout.readline()))
        assert stub.is_running()
        server.kill()

    def has_ended() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return stub.status() == psutil.STATUS_ZOMBIE
        return True

    eventually(has_ended, 5, "the stub has ended")
