"""Doubles of what is launched: a scripted server, and a program that stands in for tritonserver."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from proxy.domain.errors import LaunchError
from proxy.operate.triton_server.launch import Launch


class ScriptedServer:
    """Lives for the given times, in seconds of its own clock; a None is a start that fails with
    `error`.
    """

    def __init__(self, *lives_s: float | None, error: type[LaunchError] = LaunchError) -> None:
        self._lives_s = list(lives_s)
        self._error = error
        self.now_s = 0.0
        self.slept_s: list[float] = []
        self.is_stopped = False
        self.script_ended = asyncio.Event()

    async def start(self) -> None:
        if self._lives_s and self._lives_s[0] is None:
            self._lives_s.pop(0)
            raise self._error("no")

    async def wait(self) -> str:
        if not self._lives_s:
            self.script_ended.set()
            await asyncio.Event().wait()
        self.now_s += self._lives_s.pop(0) or 0.0
        return "signal 9"

    async def stop(self, grace_s: float = 0.0) -> None:
        self.is_stopped = True

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)


PROGRAM = '''
import http.server, os, signal, subprocess, sys, time
mode, port = sys.argv[1], int(sys.argv[2])
stub = subprocess.Popen([sys.executable, "-cimport time; time.sleep(300)  # a tokenizer's"])
# As MPI's workers are: in a session of its own, and an orphan once what started it has ended.
worker = """
import subprocess, sys
command, none = [sys.executable, "-c", "import time; time.sleep(300)"], subprocess.DEVNULL
print(subprocess.Popen(command, start_new_session=True, stdout=none, stderr=none).pid)
"""
worker = subprocess.run([sys.executable, "-c", worker], capture_output=True, text=True).stdout
print(f"stub {stub.pid} worker {worker}", end="", flush=True)
if mode == "fails":
    print('E1121 01:30:31.4 29688 server.cc:241] "CudaDriverHelper has not been initialized."')
    print("E1121 01:30:31.4 9 lifecycle.cc:642] \\"failed to load 'demo': no file\\\\nAt:\\"")
    sys.exit(1)
if mode == "crashes":
    print("\\nterminate called after throwing an instance of 'boost::interprocess::lock_exception'")
    sys.stdout.flush()
    os.abort()
if mode == "hangs":
    time.sleep(300)
end = time.monotonic() + {"slow": 4.5, "endless": 300}.get(mode, 0)
while time.monotonic() < end:
    pass
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", port), Ready).serve_forever()
'''


def program(artifacts: Path, mode: str, port: int, *, start_timeout_s: float = 20.0) -> Launch:
    """Starts the stand-in instead of tritonserver. It has a child, as tritonserver has stubs."""
    launch = Launch(
        arguments=[sys.executable, "-c", PROGRAM, mode, str(port)],
        environment={},
        artifacts=artifacts,
        grpc_port=port,
        metrics_port=port,
        shm_prefix=f"triton-openai-test-{port}-",
        secret="",
        start_timeout_s=start_timeout_s,
    )
    launch.log.parent.mkdir(parents=True)
    return launch
