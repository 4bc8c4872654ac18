"""The child process of sandbox.py: tries each guide in a fork, and ends with its parent.

usage: python -m guide_check.sandbox_child INFO_FILE MEMORY_BYTES TIMEOUT_S COMPILE_S

Standard input is a listening socket, whose clients send and get JSON lines. A client first gets
{"error": null or why the child cannot start, "pid": ...}. For each of its [number, kind, text] it
then gets {"number": ..., "reason": null or why the guide cannot be used}, in any order. A client
that sends anything else is disconnected. The child ends when its last client leaves.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import select
import socket
import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from grammars.xgrammar_loader import grammar_compiler
from guide_check.sandbox import RECEIVED_AT_ONCE, is_of_this_user
from guide_check.trial import try_out
from guide_check.trial_queue import Trial, TrialQueue

SCHEDULE_EVERY_S = 0.02  # while trials run
UNSENT_AT_MOST = 256_000  # bytes; a client with 64 guides under way is owed a third of it at most
LINE_AT_MOST = 4_000_000  # bytes; a guide of 256,000 takes 1.6 MB as JSON
CLIENTS_AT_MOST = 64  # others wait to be accepted
GUIDES_AT_MOST = 1000  # of a client; what it sends beyond them is not read yet


def main() -> None:
    listener = socket.socket(fileno=0)
    try:
        compiler = _compiler(Path(sys.argv[1]))
    except Exception as error:
        client, _ = listener.accept()
        with suppress(OSError):
            client.sendall(_line({"error": f"{type(error).__name__}: {error}"}))
        return
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    gc.freeze()  # collections would copy the pages that forks share
    queue = TrialQueue(
        partial(try_out, compiler),
        memory_bytes=int(sys.argv[2]),
        timeout_s=float(sys.argv[3]),
        compile_s=float(sys.argv[4]),
    )
    try:
        _serve(listener, queue)
    finally:
        queue.close()


def _serve(listener: socket.socket, queue: TrialQueue) -> None:
    """Runs trials until the last client closes its connection, or ends."""
    clients: dict[socket.socket, bytes] = {}  # with the beginning of a line
    unsent: dict[socket.socket, bytes] = {}  # of clients that have not read what came before
    asked: dict[int, tuple[socket.socket, int]] = {}  # by the trial: a client, and its number
    trials = itertools.count(1)
    while True:
        queue.schedule()
        pipes = queue.pipes
        guides = Counter(client for client, _ in asked.values())
        watched: list[Any] = [*pipes, *(one for one in clients if guides[one] < GUIDES_AT_MOST)]
        if len(clients) < CLIENTS_AT_MOST:
            watched.append(listener)
        wait_s = SCHEDULE_EVERY_S if pipes else None
        readable, writable, _ = select.select(watched, [*unsent], [], wait_s)
        for client in writable:
            _send(client, b"", unsent)
        for one in readable:
            if one is listener:
                client, _ = listener.accept()
                if is_of_this_user(client):
                    clients[client] = b""
                    _send(client, _line({"error": None, "pid": os.getpid()}), unsent)
            elif one in clients:
                data = _received(one)
                *lines, clients[one] = (clients[one] + data).split(b"\n")
                try:
                    for number, kind, text in map(json.loads, lines):
                        asked[trial := next(trials)] = one, number
                        queue.add(Trial(trial, kind, text))
                except (ValueError, TypeError, RecursionError):  # no guide
                    data = b""
                if not data or len(clients[one]) > LINE_AT_MOST:
                    del clients[one]
                    unsent.pop(one, None)
                    one.close()
                    asked = {trial: by for trial, by in asked.items() if by[0] is not one}
                    queue.keep(asked)
                    if not clients:
                        return
            elif (ended := queue.end(pipes[one])) is not None:
                trial, reason = ended
                if (by := asked.pop(trial, None)) is not None:
                    _send(by[0], _line({"number": by[1], "reason": reason}), unsent)


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(RECEIVED_AT_ONCE)
    except OSError:
        return b""


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _send(client: socket.socket, line: bytes, unsent: dict[socket.socket, bytes]) -> None:
    """Sends as much as the client's buffer takes, and disconnects a client that reads nothing."""
    left = unsent.pop(client, b"") + line
    is_reading = True
    try:
        left = left[client.send(left, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        pass
    except OSError:
        is_reading = False
    if not is_reading or len(left) > UNSENT_AT_MOST:
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)  # the next select reports it as one that has left
    elif left:
        unsent[client] = left


def _compiler(info_file: Path) -> Any:
    compiler = grammar_compiler(info_file)
    try_out(compiler, "json", "", lambda: None)  # loads everything that the forks then share
    return compiler


if __name__ == "__main__":
    main()
    os._exit(0)
