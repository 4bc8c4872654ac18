"""Sends guides to a child process (sandbox_child.py), which tries each in a fork it can kill."""

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

START_TIMEOUT_S = 120.0  # half a second of CPU time, even on a very busy machine
END_TIMEOUT_S = 0.5
RECEIVED_AT_ONCE = 65_536
CHILD = "guide_check.sandbox_child"
MODEL_FOLDER = Path(__file__).resolve().parents[1]


class SandboxDied(Exception):
    """The child process ended; the guides that it had are lost."""


@dataclass(frozen=True)
class TrialResult:
    """`reason`: why the guide cannot be used; None if it can."""

    number: int
    reason: str | None


class Sandbox:
    """`submit` guides, then `receive` their results, in any order.

    The child process starts at `start` or `submit`, also again after it has ended. It ends with
    this process, or at `close`. It limits each guide to `timeout_s` of CPU time by itself, of which
    compiling may take `compile_s`.
    """

    def __init__(
        self, info_file: Path, *, memory_bytes: int, timeout_s: float, compile_s: float
    ) -> None:
        limits = map(str, (memory_bytes, timeout_s, compile_s))
        self._command = [_python(), "-m", CHILD, str(info_file.resolve()), *limits]
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._received = b""
        self._unsent: list[bytes] = []
        self._start_by = 0.0  # the deadline of a start that has not succeeded yet

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def submit(self, number: int, kind: str, text: str) -> None:
        """Queues a guide, which the next `receive` sends. Returns at once.

        Raises:
            SandboxDied: the child process has ended since the last call.
        """
        if self._child is None:
            self.start()
        elif self._child.poll() is not None:
            self.close()
            raise SandboxDied
        self._unsent.append(json.dumps([number, kind, text]).encode() + b"\n")

    def receive(self, wait_s: float) -> TrialResult | None:
        """The next result of any guide; None if there is none after `wait_s`.

        Raises:
            SandboxDied: the child process has ended; `submit` starts another one.
            RuntimeError: no child process can be started.
        """
        end = time.monotonic() + wait_s
        if self._start_by and not self._has_started(end):
            return None
        unsent, self._unsent = self._unsent, []
        for guide in unsent:
            self._send(guide)
        message = self._message(end)
        return None if message is None else TrialResult(message["number"], message["reason"])

    def start(self) -> None:
        """Starts a new child process. Returns at once, while the child still imports."""
        self.close()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(self._timeout_s)
        with theirs:
            self._child = subprocess.Popen(
                self._command,
                cwd=MODEL_FOLDER,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # xgrammar warns about each keyword that it ignores
            )
        self._start_by = time.monotonic() + START_TIMEOUT_S

    def wait_until_started(self) -> None:
        """Waits for START_TIMEOUT_S at most.

        Raises:
            RuntimeError: the child process does not start; the message says why.
        """
        if self._start_by:
            self._has_started(self._start_by)

    def _has_started(self, end: float) -> bool:
        try:
            greeting = self._message(min(end, self._start_by))
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

    def _send(self, guide: bytes) -> None:
        assert self._socket is not None
        try:
            self._socket.sendall(guide, socket.MSG_NOSIGNAL)
        except OSError as error:
            self.close()
            raise SandboxDied from error

    def _message(self, end: float) -> Any:
        """The child's next message; None if it does not arrive in time."""
        assert self._socket is not None
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        while b"\n" not in self._received:
            left_s = end - time.monotonic()
            if not ready.poll(None if math.isinf(left_s) else max(0.0, left_s) * 1000):
                return None
            self._read(self._socket)
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(RECEIVED_AT_ONCE)
        except OSError as error:
            self.close()
            raise SandboxDied from error
        if not data:
            self.close()
            raise SandboxDied
        self._received += data

    def close(self) -> None:
        """Closes the connection, on which the child kills its forks and ends; else kills it."""
        self._received, self._unsent, self._start_by = b"", [], 0.0
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
    """In a Triton stub sys.executable may not be a Python; python3 on PATH is its environment's."""
    if Path(sys.executable or "").name.startswith("python"):
        return sys.executable
    return shutil.which("python3") or "python3"
