"""The commands of docs/operating_pools.md, run in the order of the page: they answer as it says."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.docs.pages import ROOT
from tests.fixtures.stack import HANG_S, free_port

PAGE = (ROOT / "docs" / "operating_pools.md").read_text()
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
PORTS = re.compile(r"\b(80[0-3][12]|9000)\b")
END = "--- end of a block ---"


def blocks() -> list[tuple[str, str | None]]:
    """(commands, what they print), with ports that are free here; None: the page does not say."""
    own = sorted(set(PORTS.findall(PAGE)))
    free: set[str] = set()
    while len(free) < len(own):
        free.add(str(free_port()))
    ports = dict(zip(own, sorted(free), strict=True))  # addresses keep their order
    page = PORTS.sub(lambda found: ports[found[0]], PAGE)
    return [(found[1], found[2]) for found in BLOCK.finditer(page)]


def normal(text: str) -> list[str]:
    """Its lines, with one space between words. The load of engines varies from run to run."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [re.sub(r"(?<= )[-\d]+/[-\d]+/\S+(?= )", "LOAD", line) for line in lines if line]


class CrashedAtItsStart(Exception):
    """A tritonserver ended with a signal: its log has `boost::interprocess::lock_exception`."""


@contextlib.contextmanager
def clone(folder: Path) -> Iterator[None]:
    """Of this repository, as far as the page needs it. What runs there ends with the body."""
    folder.mkdir()
    (folder / "demo_model").symlink_to(ROOT / "demo_model")
    command = folder / "bin" / "triton-openai"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m proxy.cli "$@"\n')
    command.chmod(0o755)
    try:
        yield
    finally:
        for path in folder.glob("rehearsal/*.pid"):
            with contextlib.suppress(psutil.NoSuchProcess, ValueError):
                process = psutil.Process(int(path.read_text()))
                process.send_signal(signal.SIGTERM)
                process.wait(HANG_S)


def played(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Raises CrashedAtItsStart."""
    with clone(folder):
        process = subprocess.Popen(
            ["bash", "-euc", script],
            cwd=folder,
            env={**environment(), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = process.communicate(timeout=1)
                return subprocess.CompletedProcess(script, process.returncode, out, err)
            logs = [path.read_text() for path in folder.glob("rehearsal/*.log")]
            if any("tritonserver ended with signal" in log for log in logs):
                break
        os.killpg(process.pid, signal.SIGKILL)
        _, err = process.communicate()
        raise CrashedAtItsStart(err)


def test_the_commands_of_the_page_answer_as_it_says(tmp_path):
    """Its loops would wait for ever for a Triton that crashed; then once more from the start."""
    found = blocks()
    assert sum(expected is not None for _, expected in found) > len(found) / 2
    script = "".join(f"{commands}echo '{END}'\n" for commands, _ in found)
    try:
        done = played(tmp_path / "once", script)
    except CrashedAtItsStart:
        done = played(tmp_path / "again", script)
    printed = done.stdout.split(f"{END}\n")
    differing = [
        (commands, normal(answer), normal(expected))
        for (commands, expected), answer in zip(found, printed, strict=False)
        if expected is not None and normal(answer) != normal(expected)
    ]
    assert differing == [], done.stderr
    assert done.returncode == 0, done.stderr
    assert len(printed) == len(found) + 1


def environment() -> dict[str, str]:
    """Without settings of whoever runs the tests; this checkout's code."""
    names = ("HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
