"""Finds the lines in tritonserver's log that say why it did not start. Called by `server`."""

from __future__ import annotations

import re
from pathlib import Path

# Triton's Python backend, now and then, while the processes of several models start at once (2.51).
CRASH = "boost::interprocess::lock_exception"
MOST_LINES = 3
TAIL_BYTES = 100_000

_ERROR = re.compile(r'^E\d{4} [^\]]*\] "?(?:ERROR: )?(.*?)"?$')
_FAILED_LOAD = re.compile(r"failed to load '([^']+)' version \d+: (.*)")
_OTHERS = ("[libprotobuf ERROR", "bash: ", "error: ", "terminate called after")
# printed on every machine without a GPU
_NOISE = ("CudaDriverHelper", "failed to load all models")


def reasons(path: Path) -> list[str]:
    """The last distinct errors, one line each; failures to load models only, if there are any."""
    found = list(dict.fromkeys(_errors(_tail(path))))
    failed_loads = [line for line in found if line.startswith("failed to load")]
    return (failed_loads or found)[-MOST_LINES:]


def failed_load(path: Path) -> tuple[str, str] | None:
    """The Triton model that failed to load, and the reason."""
    for line in _errors(_tail(path)):
        if failed := _FAILED_LOAD.match(line):
            return failed[1], failed[2]
    return None


def _errors(text: str) -> list[str]:
    return [
        error_line
        for line in text.splitlines()
        if (error_line := _error(line)) and not any(noise in line for noise in _NOISE)
    ]


def _error(line: str) -> str | None:
    if error := _ERROR.match(line):
        return error[1].split("\\n")[0]  # the rest is a Python traceback, escaped
    return line if line.startswith(_OTHERS) else None


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
