"""The child process of sandbox.py: tries each guide in a fork, and ends with its parent.

usage: python -m guide_check.sandbox_child INFO_FILE MEMORY_BYTES TIMEOUT_S COMPILE_S

Standard input is a socket of JSON lines. The child first sends {"error": null or why it cannot
start}. For each [number, kind, text] it then sends {"number": ..., "reason": null or why the guide
cannot be used}, in any order.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from grammars.xgrammar_loader import grammar_compiler
from guide_check.trial import try_out
from guide_check.trial_queue import Trial, TrialQueue

SCHEDULE_EVERY_S = 0.02  # while trials run
RECEIVED_AT_ONCE = 65_536


def main() -> None:
    connection = socket.socket(fileno=0)
    try:
        compiler = _compiler(Path(sys.argv[1]))
    except Exception as error:
        _send(connection, {"error": f"{type(error).__name__}: {error}"})
        return
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    gc.freeze()  # collections would copy the pages that forks share
    _send(connection, {"error": None})
    queue = TrialQueue(
        partial(try_out, compiler),
        memory_bytes=int(sys.argv[2]),
        timeout_s=float(sys.argv[3]),
        compile_s=float(sys.argv[4]),
    )
    try:
        _serve(connection, queue)
    finally:
        queue.close()


def _serve(connection: socket.socket, queue: TrialQueue) -> None:
    """Runs trials until the parent closes the connection, or ends."""
    received = b""
    while True:
        queue.schedule()
        pipes = queue.pipes
        ready, _, _ = select.select(
            [connection.fileno(), *pipes], [], [], SCHEDULE_EVERY_S if pipes else None
        )
        for one in ready:
            if one == connection.fileno():
                data = connection.recv(RECEIVED_AT_ONCE)
                if not data:
                    return
                *lines, received = (received + data).split(b"\n")
                for line in lines:
                    queue.add(Trial(*json.loads(line)))
            elif (ended := queue.end(pipes[one])) is not None:
                number, reason = ended
                _send(connection, {"number": number, "reason": reason})


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _compiler(info_file: Path) -> Any:
    compiler = grammar_compiler(info_file)
    try_out(compiler, "json", "", lambda: None)  # loads everything that the forks then share
    return compiler


if __name__ == "__main__":
    main()
    os._exit(0)
