"""Runs an external program as part of a build, with its output in a log."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from build_engines.errors import BuildError

LAST_LINES = 5
PROGRESS_S = 30.0
Say = Callable[[str], None]


def run(
    command: Sequence[str],
    *,
    log: Path,
    say: Say,
    environment: Mapping[str, str] | None = None,
    progress_s: float = PROGRESS_S,
) -> None:
    """Runs the command to its end, and reports the log's last line every `progress_s` seconds.

    Raises:
        BuildError: it failed or is not installed; the message has its last lines.
    """
    started = time.monotonic()
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment
            )
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run: {error.strerror}") from error
    with process:
        while (status := _ended(process, progress_s)) is None:
            minutes = (time.monotonic() - started) / 60
            say(f"{minutes:.1f} min: {' '.join(last_lines(log, 1))[:160]}")
    if status != 0:
        raise BuildError(
            f"{shown(command)} ended with exit status {status}: "
            f"{' | '.join(last_lines(log, LAST_LINES))} (whole output: {log})"
        )


def shown(command: Sequence[str]) -> str:
    """The command as a shell would take it."""
    return shlex.join(command)


def last_lines(log: Path, count: int) -> list[str]:
    return log.read_text(errors="replace").strip().splitlines()[-count:]


def _ended(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None
