"""ranks: how many processes the models of a registry want, and upstream's command for them."""

from __future__ import annotations

import asyncio
import stat
import sys
from pathlib import Path

import psutil
import pytest

from build_engines.models_file import ModelsFile
from proxy.domain.errors import LaunchError
from proxy.operate.triton_server import launch, ranks
from proxy.operate.triton_server.launch import RESTRICTED
from proxy.operate.triton_server.ranks import World
from proxy.operate.triton_server.server import TritonServer
from proxy.settings import Settings
from proxy.triton.target import RESTRICTED_KEY
from tests.fixtures.stack import HANG_S, SECRET, free_port

PROGRAM = """\
import http.server, os, subprocess, sys, time
told = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
if "--load-model" in told:
    time.sleep(300)  # as the ranks do that do not serve: they never come out of loading
stub = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(told["--http-port"])), Ready).serve_forever()
"""
MPIRUN = """\
import os, signal, subprocess, sys
parts = [[]]
for argument in sys.argv[sys.argv.index("-n"):]:
    parts.append([]) if argument == ":" else parts[-1].append(argument)
started = [
    subprocess.Popen(part[2:], env={**os.environ, "OMPI_COMM_WORLD_RANK": str(rank)})
    for rank, part in enumerate(parts)
]
def stop(*_):
    for process in started:
        process.kill()
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
sys.exit(any([process.wait() for process in started]))
"""

# As upstream's (020c89e6): rank 0 has the command beside its own process, the others have that
# alone. It prints the command twice: by `set -x`, and as a message, as its later versions do.
LAUNCHER = """\
#!/bin/bash
set -ex
task_with_command="${@:1}"
echo -e "rank${OMPI_COMM_WORLD_RANK} run ${task_with_command} in background" >&2
if [ "$OMPI_COMM_WORLD_RANK" -eq 0 ]; then
  (
    unset OMPI_COMM_WORLD_RANK
    $task_with_command
    echo stop
  ) &
fi
/usr/bin/sleep 300
"""


def models(**entries: dict) -> ModelsFile:
    given = {name: {"weights": "w", **entry} for name, entry in entries.items()}
    return ModelsFile.model_validate({"models": given})


def gpu(runtime: str, **options: object) -> dict:
    """Its share of the GPUs' memory leaves room for another model."""
    return {"runtime": runtime, "gpu": {"kv_cache": {"fraction": 0.4}, **options}}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """mpirun, tritonserver and the LLM API's launcher on PATH, and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "mpirun": f"#!{sys.executable}\n{MPIRUN}",
        "tritonserver": f"#!{sys.executable}\n{PROGRAM}",
        "trtllm-llmapi-launch": LAUNCHER,
    }.items():
        path = folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.parametrize(
    ("given", "world"),
    [
        (models(small={}), World()),
        (models(m=gpu("tensorrtllm")), World()),
        (models(m=gpu("tensorrt_llm", tensor_parallel=8)), World(is_under_mpirun=True)),
        (models(m=gpu("tensorrt_llm"), small={}), World(is_under_mpirun=True)),
        (models(m=gpu("tensorrt_llm", mpi="mpirun")), World(is_under_mpirun=True)),
        (models(m=gpu("tensorrt_llm", mpi="spawn")), World()),
        (models(m=gpu("tensorrt_llm", mpi="single_process")), World()),
        (models(a=gpu("tensorrt_llm"), b=gpu("tensorrt_llm")), World()),  # each spawns its own
        (models(a=gpu("tensorrt_llm"), b=gpu("tensorrtllm")), World()),
        (
            models(a=gpu("tensorrt_llm", mpi="mpirun"), b=gpu("tensorrt_llm")),
            World(is_under_mpirun=True),
        ),
        (
            models(m=gpu("tensorrt_llm", tensor_parallel=2, devices=[4, 5])),
            World(is_under_mpirun=True),  # the engine's process has a parameter for them
        ),
        (models(m=gpu("tensorrt_llm", devices=[4], mpi="spawn")), World()),
        (
            models(m=gpu("tensorrtllm", tensor_parallel=2, pipeline_parallel=2), small={}),
            World(size=4, engines=("m_engine",)),
        ),
        (
            models(
                a=gpu("tensorrtllm", tensor_parallel=2), b=gpu("tensorrtllm", pipeline_parallel=2)
            ),
            World(size=2, engines=("a_engine", "b_engine")),
        ),
        (
            models(m=gpu("tensorrt_llm", tensor_parallel=8, pipeline_parallel=2)),
            World(size=16, engines=("m_engine",), launcher=("trtllm-llmapi-launch",)),
        ),
        (
            models(m=gpu("tensorrt_llm", tensor_parallel=4, gpus_per_node=2, devices=[4, 5])),
            World(
                size=4,
                engines=("m_engine",),
                launcher=("trtllm-llmapi-launch",),
                devices=("4", "5"),
            ),
        ),
        (
            models(m=gpu("tensorrtllm", tensor_parallel=2, devices=[4, 5])),
            World(size=2, engines=("m_engine",)),  # the backend has a parameter for them
        ),
    ],
)
def test_the_world_is_that_of_the_registry(given, world):
    assert World.of(given) == world


@pytest.mark.parametrize(
    "given",
    [
        models(a=gpu("tensorrtllm", tensor_parallel=2), b=gpu("tensorrtllm", tensor_parallel=4)),
        models(a=gpu("tensorrtllm", tensor_parallel=2), b=gpu("tensorrtllm")),
        models(a=gpu("tensorrtllm", tensor_parallel=2), b=gpu("tensorrt_llm")),
        models(
            a=gpu("tensorrt_llm", tensor_parallel=16), b=gpu("tensorrt_llm", tensor_parallel=16)
        ),
    ],
)
def test_models_that_cannot_be_in_one_server_are_named(given):
    with pytest.raises(LaunchError, match=r"a is distributed .* and b .*: one tritonserver cannot"):
        World.of(given)


MPIRUN_AS_ROOT = "mpirun --allow-run-as-root --bind-to none"
ONLY = "--model-control-mode=explicit --load-model=m_engine"
LLM_API = "trtllm-llmapi-launch"
SHELL = '/bin/sh -c S=$TRITON_SECRET;unset${IFS}TRITON_SECRET;exec${IFS}"$@"${IFS} sh'


@pytest.mark.parametrize(
    ("world", "command"),
    [
        (World(), "/t --x=1 mine-"),
        (World(is_under_mpirun=True), f"{MPIRUN_AS_ROOT} -n 1 /t --x=1 mine-0-"),
        (  # rank 0 loads everything, the others the engine only
            World(size=3, engines=("m_engine",)),
            f"{MPIRUN_AS_ROOT} -n 1 /t --x=1 mine-0- : -n 1 /t --x=1 {ONLY} mine-1- "
            f": -n 1 /t --x=1 {ONLY} mine-2-",
        ),
        (
            World(size=2, engines=("m_engine",), launcher=(LLM_API,)),
            f"{MPIRUN_AS_ROOT} -n 1 {LLM_API} {SHELL} /t --x=1 mine-0- "
            f": -n 1 {LLM_API} {SHELL} /t --x=1 {ONLY} mine-1-",
        ),
    ],
)
def test_the_command_is_that_of_upstreams_launch_triton_server(programs, world, command):
    found = " ".join(ranks.command(["/t", "--x=1"], world, shm_prefix="mine-", secret=SECRET))
    backend = "--backend-config=python,shm-region-prefix-name="
    assert found.replace(f"{programs}/", "").replace(backend, "") == command


def test_a_gpu_model_without_a_containers_server_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LaunchError, match="m needs GPUs, and the embedded tritonserver has none"):
        launch.prepared(Settings(artifacts_dir=tmp_path), models(m=gpu("tensorrt_llm")))


ONE = gpu("tensorrtllm")
UNDER_MPIRUN = gpu("tensorrt_llm")
TWO = gpu("tensorrtllm", tensor_parallel=2)
NODES = gpu("tensorrt_llm", tensor_parallel=2, gpus_per_node=1)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("model", "victim"),
    [
        (ONE, "a Python model"),
        (UNDER_MPIRUN, "a Python model"),
        (UNDER_MPIRUN, "the server"),
        (TWO, "a Python model"),
        (TWO, "another rank"),
        (NODES, "a Python model"),
        (NODES, "another rank"),
        (NODES, "the server"),  # beside which upstream's launcher goes on
    ],
)
def test_an_installed_server_starts_is_watched_and_leaves_nothing(tmp_path, model, victim):
    port = free_port()
    settings = Settings(
        artifacts_dir=tmp_path,
        triton_grpc_port=port,
        triton_http_port=port,
        triton_metrics_port=port,
        triton_start_timeout_s=HANG_S,
        triton_secret=SECRET,
    )
    launched = launch.prepared(settings, models(m=model))

    async def life() -> tuple[str, list[psutil.Process]]:
        before = set(psutil.Process().children(recursive=True))
        server = TritonServer(launched)
        await server.start()
        started = [p for p in psutil.Process().children(recursive=True) if p not in before]
        [serving] = [process for process in started if _part(process) == "the server"]
        restricted = f"--grpc-restricted-protocol={','.join(RESTRICTED)}:{RESTRICTED_KEY}={SECRET}"
        assert restricted in serving.cmdline()
        assert "TRITON_SECRET" not in serving.environ()
        ended = asyncio.create_task(server.wait())
        await asyncio.sleep(0.5)
        next(process for process in started if _part(process) == victim).kill()
        how = await ended
        await server.stop(grace_s=0)
        return how, started

    how, started = asyncio.run(life())
    # of a server that is killed, mpirun may tell first
    assert " died: " in how or (how, victim) == ("exit status 1", "the server")
    _, alive = psutil.wait_procs(started, timeout=HANG_S)
    assert not alive
    logged = launched.log.read_text()
    assert SECRET not in logged, "upstream's launcher prints its command"
    assert ("in background" in logged) is (model is NODES)


def _part(process: psutil.Process) -> str:
    """By the command line: what it is to the server as a whole."""
    try:
        arguments = process.cmdline()[1:]
    except psutil.Error:
        return "beside them"  # it has ended
    if arguments[:1] == ["-c"]:
        return "a Python model"
    if not arguments or Path(arguments[0]).name not in {"tritonserver", "trtllm-llmapi-launch"}:
        return "beside them"
    if any(part.startswith("--load-model") for part in arguments):
        return "another rank"
    return "the server" if Path(arguments[0]).name == "tritonserver" else "the launcher"
