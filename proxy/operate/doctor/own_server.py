"""Recognises ports that a running server of this project holds. Called by `machine`."""

from __future__ import annotations

from dataclasses import replace

from proxy.operate.doctor.checks import Check
from proxy.operate.triton_server import ports

MODULE, SCRIPT = "proxy.cli", "triton-openai"


def recognised(check: Check, port: int) -> Check:
    """Passes the check of a port that our own running server holds."""
    if check.ok or (server := running(port)) is None:
        return check
    return replace(check, ok=True, detail=f"{port} is held by your running {server}")


def running(port: int) -> str | None:
    """`triton-openai serve (pid 12)`, if this user may see the process.

    The process that listens is the launcher, or its tritonserver.
    """
    import psutil

    try:
        listener = ports.listener(port)
        for process in [] if listener is None else [listener, *listener.parents()]:
            if (command := _command(process.cmdline())) is not None:
                return f"{SCRIPT} {command} (pid {process.pid})"
    except psutil.Error:
        return None
    return None


def _command(words: list[str]) -> str | None:
    """`serve`, from `python -m ….proxy.cli serve` or `.venv/bin/triton-openai serve`."""
    for at, word in enumerate(words[:-1]):
        if word == MODULE or word.rpartition("/")[2] == SCRIPT:
            return words[at + 1]
    return None
