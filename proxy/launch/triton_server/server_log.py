"""tritonserver's log: the lines that say why it did not start."""

from __future__ import annotations

import re
from pathlib import Path

MOST_LINES = 3
TAIL_BYTES = 100_000

_ERROR = re.compile(r'^E\d{4} [^\]]*\] "?(?:ERROR: )?(.*?)"?$')
_FAILED_LOAD = re.compile(r"failed to load '([^']+)' version \d+: (.*)")
_OTHERS = ("[libprotobuf ERROR", "bash: ", "error: ")
# Printed on every machine without a GPU.
_NOISE = ("CudaDriverHelper", "failed to load all models")


def reasons(path: Path) -> list[str]:
    """The last few different complaints, one line each, most telling ones only."""
    found = list(dict.fromkeys(_complaints(_tail(path))))
    failed_loads = [line for line in found if line.startswith("failed to load")]
    return (failed_loads or found)[-MOST_LINES:]


def failed_load(path: Path) -> tuple[str, str] | None:
    """The Triton model that did not load, and why."""
    for line in _complaints(_tail(path)):
        if failed := _FAILED_LOAD.match(line):
            return failed[1], failed[2]
    return None


def _complaints(text: str) -> list[str]:
    return [
        complaint
        for line in text.splitlines()
        if (complaint := _complaint(line)) and not any(noise in line for noise in _NOISE)
    ]


def _complaint(line: str) -> str | None:
    if error := _ERROR.match(line):
        return error[1].split("\\n")[0]  # the rest is a Python traceback, escaped
    return line if line.startswith(_OTHERS) else None


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
