"""server: a process that is started until ready, and leaves nothing behind. A stand-in is run."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from proxy.domain.errors import LaunchError
from proxy.operate.triton_server import lifeline, shm
from proxy.operate.triton_server import server as tritonserver
from proxy.operate.triton_server.launch import Launch
from proxy.operate.triton_server.server import StartCrashed, TritonServer
from tests.fixtures.stack import HANG_S, eventually, free_port, triton_log

pytestmark = pytest.mark.anyio

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


def test_it_is_scheduled_as_the_proxy_is_and_no_terminal_signals_it():
    """Linux divides cores between sessions first, see lifeline."""
    show = "import os; print(os.getsid(0), os.getpgid(0))"
    command = lifeline.command([sys.executable, "-c", show])
    session, group = map(int, subprocess.check_output(command, text=True, timeout=HANG_S).split())
    assert session == os.getsid(0)
    assert group != os.getpgid(0)


@pytest.fixture
def port() -> int:
    return free_port()


def stub_pid(artifacts: Path) -> int:
    return int(triton_log(artifacts).read_text().split()[1])


def worker_pid(artifacts: Path) -> int:
    return int(triton_log(artifacts).read_text().split()[3])


def has_children(artifacts: Path) -> bool:
    log = triton_log(artifacts)
    return log.exists() and len(log.read_text().split()) == 4


def is_gone(pid: int, within_s: float = HANG_S) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("mode", ["serves", "deaf"])
async def test_a_stop_leaves_no_process_and_no_region(tmp_path, port, mode):
    region = shm.SHM / f"triton-openai-test-{port}-x"
    server = TritonServer(program(tmp_path, mode, port))
    await server.start()
    region.touch()
    ended = asyncio.create_task(server.wait())
    await server.stop(grace_s=0.5)
    assert await ended == ("signal 15" if mode == "serves" else "signal 9")
    assert is_gone(stub_pid(tmp_path))
    assert is_gone(worker_pid(tmp_path))
    assert not region.exists()


async def test_the_log_is_this_hosts_and_where_it_is_shown_also_on_stdout(tmp_path, port, capfd):
    """Several containers may share artifacts/. The logs of hosts that are gone are removed."""
    launch = program(tmp_path, "serves", port)
    other, gone = (launch.log.with_name(f"tritonserver.{name}.log") for name in ("other", "gone"))
    for path in (launch.log, other, gone):
        path.write_text(path.name)
    os.utime(gone, (1, 1))
    server = TritonServer(launch, shows_log=True)
    await server.start()
    await server.stop(grace_s=0)
    assert capfd.readouterr().out == launch.log.read_text()
    assert stub_pid(tmp_path)
    assert launch.log.with_suffix(".log.1").read_text() == launch.log.name
    assert other.exists()
    assert not gone.exists()


@pytest.mark.parametrize(
    ("mode", "error", "why"),
    [
        ("fails", LaunchError, r"exit status 1: failed to load 'demo': no file \(log"),
        # of Triton's Python backend; a new start may work
        ("crashes", StartCrashed, r"signal 6: terminate called .*lock_exception"),
    ],
)
def test_a_start_that_ends_says_why_in_one_line(tmp_path, port, mode, error, why):
    with pytest.raises(LaunchError, match=why) as raised:
        asyncio.run(TritonServer(program(tmp_path, mode, port)).start())
    assert raised.type is error
    assert is_gone(stub_pid(tmp_path))


def test_a_start_that_takes_too_long_is_given_up(tmp_path, port):
    """With ranks on other nodes, which may come later, no start is given up earlier."""
    launch = program(tmp_path, "hangs", port, start_timeout_s=4.0)
    launch = replace(launch, ends_still_start=False)
    with pytest.raises(
        LaunchError, match="not ready within 4 s after it last made progress"
    ) as why:
        asyncio.run(TritonServer(launch).start())
    assert is_gone(stub_pid(tmp_path))
    waits = rf"waits for the metrics port {port}, .* and runs python\S* \(\d+\.\d s of CPU\)"
    assert re.search(waits, str(why.value))
    assert re.search(r"load of [\d. ]+ on \d+ cores, and [\d.]+ of [\d.]+ GB", str(why.value))


SLEEP = "import time; time.sleep(300)"
SPIN = "while True: pass"
# The kernel's wait for a child that shares our memory is one that signals do not end, as that for a
# disk: state D.
WAIT = """
import os
os.mkfifo("fifo")
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "fifo", 0, 0)])
"""
WAIT_IN_A_THREAD = f"import threading; threading.Thread(target=exec, args=[{WAIT!r}]).start()"
LOG = """
import time
while True:
    time.sleep(0.001)
    print("loading", flush=True)
"""


@pytest.mark.parametrize(
    ("code", "sent", "is_still"),
    [
        (SLEEP, None, True),
        (SPIN, signal.SIGSTOP, True),
        (SPIN, None, False),
        (WAIT, None, False),
        (WAIT_IN_A_THREAD, None, False),
        (LOG, None, False),
    ],
    ids=["sleeps", "is stopped", "computes", "waits for a disk", "a thread waits", "logs"],
)
def test_a_start_stands_still_if_nothing_works_or_waits_for_the_machine(
    tmp_path, port, code, sent, is_still
):
    launch = program(tmp_path, "", port, start_timeout_s=0.1)
    command = [sys.executable, "-S", "-c"]
    parent_code = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    with launch.log.open("wb") as log:
        parent = subprocess.Popen(
            [*command, parent_code, *command, f"print(1, flush=True)\n{code}"],
            cwd=tmp_path,
            stdout=log,
        )
    try:
        root = psutil.Process(parent.pid)
        eventually(lambda: launch.log.stat().st_size, 10, "it has started")
        (child,) = root.children()
        state = {SLEEP: "S", SPIN: "R", LOG: "S"}.get(code, "D")
        eventually(lambda: state in states(child), 10, f"it is in {state}: {states(child)}")
        if sent:
            child.send_signal(sent)
        progress = tritonserver._Progress(parent.pid, launch)
        looks = [look(progress) for _ in range(tritonserver.STILL_LOOKS + 1)]
        assert (looks == [*range(tritonserver.STILL_LOOKS + 1)]) is is_still, looks
        assert is_still or max(looks) < tritonserver.STILL_LOOKS
    finally:
        for process in (child, root):
            process.kill()
        parent.wait()


def look(progress: tritonserver._Progress) -> int:
    time.sleep(0.02)  # over a tenth of the timeout
    progress.look()
    return progress.still_looks


def states(process: psutil.Process) -> set[str]:
    tasks = Path(f"/proc/{process.pid}/task").glob("*/stat")
    return {stat.read_text().rpartition(")")[2].split()[0] for stat in tasks}


async def test_a_start_that_makes_progress_may_take_longer(tmp_path, port):
    server = TritonServer(program(tmp_path, "slow", port, start_timeout_s=3.0))
    await server.start()
    await server.stop(grace_s=1)


def test_a_start_that_moves_for_ever_is_given_up_too(tmp_path, port):
    launch = replace(program(tmp_path, "endless", port, start_timeout_s=1.5), progress_s=3.0)
    with pytest.raises(LaunchError, match=r"\d+ s \(TRITON_START_TIMEOUT_S and 3 s for progress\)"):
        asyncio.run(TritonServer(launch).start())
    assert is_gone(stub_pid(tmp_path))


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path, port):
    starting = asyncio.create_task(TritonServer(program(tmp_path, "hangs", port)).start())
    await asyncio.to_thread(eventually, lambda: has_children(tmp_path), 20, "it has started")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert is_gone(stub_pid(tmp_path))


async def test_a_death_leaves_nothing_that_could_hold_a_gpu_and_a_new_start_works(tmp_path, port):
    server = TritonServer(program(tmp_path, "serves", port))
    await server.start()
    pids = stub_pid(tmp_path), worker_pid(tmp_path)
    psutil.Process(pids[0]).parent().kill()
    assert await server.wait() == "signal 9"
    assert not any(map(psutil.pid_exists, pids)), "before it is started anew"
    await server.start()
    await server.stop(grace_s=1)


@pytest.mark.parametrize(
    ("sent", "how"),
    [(signal.SIGKILL, "died"), (signal.SIGSTOP, "stands still")],
)
async def test_a_python_model_that_dies_or_stands_still_is_a_dead_server(tmp_path, port, sent, how):
    server = TritonServer(program(tmp_path, "serves", port))
    await server.start()
    ended = asyncio.create_task(server.wait())
    await asyncio.sleep(0.1)
    os.kill(stub_pid(tmp_path), sent)
    status = await asyncio.wait_for(ended, HANG_S)
    assert status.startswith(f"its process {stub_pid(tmp_path)} {how}: ")


NOISE = """\
W1121 01:30:31.044508 29688 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory"
E1121 01:30:31.044727 29688 server.cc:241] "CudaDriverHelper has not been initialized."
"""
END = "error: creating server: Internal - failed to load all models\n"


@pytest.mark.parametrize(
    ("output", "reasons"),
    [
        (
            'E1121 01:30:31.4 9 backend_model.cc:692] "ERROR: Failed to create instance: '
            'ValueError: no file\\n\\nAt:\\n  /x/model.py(4): initialize\\n"\n'
            "E1121 01:30:31.4 9 model_lifecycle.cc:642] \"failed to load 'echo' version 1: "
            'Internal: ValueError: no file\\n\\nAt:\\n  /x/model.py(4): initialize\\n"\n',
            ["failed to load 'echo' version 1: Internal: ValueError: no file"],
        ),
        (
            "[libprotobuf ERROR text_format.cc:337] Error parsing: 5:46: Unknown value\n"
            'E1121 01:30:31.8 9 model_repository_manager.cc:1460] "Poll failed for model '
            "directory 'echo'\"\n",
            [
                "[libprotobuf ERROR text_format.cc:337] Error parsing: 5:46: Unknown value",
                "Poll failed for model directory 'echo'",
            ],
        ),
        ("bash: line 1: /a: No such file\n", ["bash: line 1: /a: No such file"]),
        (
            "terminate called after throwing an instance of 'lock_exception'\n  what():  a lock\n",
            ["terminate called after throwing an instance of 'lock_exception'"],
        ),
        ("", []),
    ],
)
def test_the_telling_lines_are_found(output, reasons):
    assert tritonserver.log_errors(NOISE + output + END) == reasons


BUSY = 'engine_requests_unfinished{model="a_engine",version="1"} 2\n'
IDLE = 'engine_requests_unfinished{model="a_engine",version="1"} 0\n'
OF_NVIDIA = """\
nv_trt_llm_request_metrics{model="b",request_type="active",version="1"} 3
nv_trt_llm_request_metrics{model="b",request_type="waiting",version="1"} 5
"""


def waits(answers: list[str], *, at_most_s: float = 20.0, quiet_s: float = 0.0) -> bool:
    """The last answer is given for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        writer.write(f"HTTP/1.1 200 OK\r\n\r\n{answer}".encode())
        writer.close()

    async def run() -> bool:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await tritonserver.until_idle(port, at_most_s, quiet_s=quiet_s)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answers", "quiet_s"),
    [([BUSY, OF_NVIDIA, IDLE], 0.0), ([IDLE, BUSY, IDLE], 0.2)],
    ids=["until nothing runs", "for what begins in the quiet time"],
)
def test_a_drain_waits(answers, quiet_s):
    assert waits(answers, quiet_s=quiet_s)
    assert answers == [IDLE]
