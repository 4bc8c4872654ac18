"""Whether it is a server of this project that holds a port. Called by `doctor`."""

from __future__ import annotations

from dataclasses import replace

from triton_openai.proxy.launch.doctor.checks import Check
from triton_openai.proxy.launch.triton_server import ports

MODULE, SCRIPT = "triton_openai.proxy.cli", "triton-openai"


def recognised(check: Check, port: int) -> Check:
    """The check of a port: one that our own running server holds is as it must be."""
    if check.ok or (server := running(port)) is None:
        return check
    return replace(check, ok=True, detail=f"{port} is held by your running {server}")


def running(port: int) -> str | None:
    """`triton-openai serve (pid 12)`, where this user may see it.

    The process that listens is the launcher itself, a worker of it, or its tritonserver.
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
    """`serve` of `python -m ….proxy.cli serve` and of `.venv/bin/triton-openai serve`."""
    for at, word in enumerate(words[:-1]):
        if word == MODULE or word.rpartition("/")[2] == SCRIPT:
            return words[at + 1]
    return None
