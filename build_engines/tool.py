"""Another program that does a part of a build: its output goes to a log, its end is judged."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from triton_openai.build_engines.errors import BuildError

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
    """Waits for it, telling its last line now and then.

    Raises:
        BuildError: it ended badly, or is not there; its last words are in the message.
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
    """As it could be pasted into a shell."""
    return shlex.join(command)


def last_lines(log: Path, count: int) -> list[str]:
    return log.read_text(errors="replace").strip().splitlines()[-count:]


def _ended(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None
