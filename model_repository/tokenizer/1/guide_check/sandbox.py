"""A child process that tries guides out, in forks that can be killed: sandbox_main.py."""

from __future__ import annotations

import json
import math
import select
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 120.0  # half a second of CPU time, on a machine as busy as it may be
END_TIMEOUT_S = 0.5
RECEIVED_AT_ONCE = 65_536
MAIN = Path(__file__).with_name("sandbox_main.py")


class SandboxDied(Exception):
    """The child ended before it answered; what it was asked is lost."""


@dataclass(frozen=True)
class Answer:
    number: int
    reason: str | None  # why the guide cannot be used; None where it can


class Sandbox:
    """Started by `start` or `ask`, also after each end. It ends with this process, or by close().

    `ask`, then `answer` until there is one; several guides may be under way. The child keeps to
    `timeout_s` of CPU time for each by itself, whether anyone waits for the answer or not.
    """

    def __init__(self, info_file: Path, *, memory_bytes: int, timeout_s: float) -> None:
        arguments = (str(info_file), str(memory_bytes), str(timeout_s))
        self._command = [_python(), str(MAIN), *arguments]
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._heard = b""
        self._unasked: list[bytes] = []
        self._start_by = 0.0

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def ask(self, number: int, kind: str, text: str) -> None:
        """Whether this guide can be used: `answer` sends the question. Returns at once.

        Raises:
            SandboxDied: the child has ended since the last question.
        """
        if self._child is None:
            self.start()
        elif self._child.poll() is not None:
            self.close()
            raise SandboxDied
        self._unasked.append(json.dumps([number, kind, text]).encode() + b"\n")

    def answer(self, wait_s: float) -> Answer | None:
        """The next one to any question; None: there is none after `wait_s`.

        Raises:
            SandboxDied: `ask` starts a new child.
            RuntimeError: no child can be started.
        """
        end = time.monotonic() + wait_s
        if self._start_by and not self._has_started(end):
            return None
        unasked, self._unasked = self._unasked, []
        for question in unasked:
            self._send(question)
        told = self._line(end)
        return None if told is None else Answer(told["number"], told["reason"])

    def start(self) -> None:
        """A new child. Returns at once: it imports in its own time."""
        self.close()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(self._timeout_s)
        with theirs:
            self._child = subprocess.Popen(
                self._command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # xgrammar warns of each keyword that it ignores
            )
        self._start_by = time.monotonic() + START_TIMEOUT_S

    def wait_until_started(self) -> None:
        """For START_TIMEOUT_S at most.

        Raises:
            RuntimeError: the child does not start; the message says why.
        """
        if self._start_by:
            self._has_started(self._start_by)

    def _has_started(self, end: float) -> bool:
        try:
            greeting = self._line(min(end, self._start_by))
        except SandboxDied as error:
            raise RuntimeError(f"the guide checker {self._command} does not start") from error
        if greeting is None:
            if time.monotonic() < self._start_by:
                return False
            greeting = {"error": f"it took longer than {START_TIMEOUT_S:g} s"}
        if greeting["error"] is not None:
            self.close()
            raise RuntimeError(f"the guide checker does not start: {greeting['error']}")
        self._start_by = 0.0
        return True

    def _send(self, question: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(question, socket.MSG_NOSIGNAL)
        except OSError as error:
            self.close()
            raise SandboxDied from error

    def _line(self, end: float) -> Any:
        """The next thing that the child says; None where it is not there in time."""
        assert self._socket is not None
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        while b"\n" not in self._heard:
            left_s = end - time.monotonic()
            if not ready.poll(None if math.isinf(left_s) else max(0.0, left_s) * 1000):
                return None
            self._hear(self._socket)
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def _hear(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(RECEIVED_AT_ONCE)
        except OSError as error:
            self.close()
            raise SandboxDied from error
        if not data:
            self.close()
            raise SandboxDied
        self._heard += data

    def close(self) -> None:
        """The child kills its forks when its connection ends, and is killed if it does not end."""
        self._heard, self._unasked, self._start_by = b"", [], 0.0
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._child is None:
            return
        child, self._child = self._child, None
        try:
            child.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # it is still importing
            child.kill()
            child.wait()


def _python() -> str:
    """In a Triton stub sys.executable may be no Python; python3 on PATH is its environment's."""
    if Path(sys.executable or "").name.startswith("python"):
        return sys.executable
    return shutil.which("python3") or "python3"
