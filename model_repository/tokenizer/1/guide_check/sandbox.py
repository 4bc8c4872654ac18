"""Sends guides to a child process (sandbox_child.py), which tries each in a fork it can kill.

All instances of a tokenizer share one child, which takes 42 MB: the first one starts it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import select
import shutil
import socket
import struct
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

    At `start` or `submit`, also after the child process has ended, it connects to that of another
    instance, or else starts one, which ends with its last connection. The child gives each
    guide `timeout_s` of CPU time, and its compilation `compile_s` of these.
    """

    def __init__(
        self, info_file: Path, *, memory_bytes: int, timeout_s: float, compile_s: float
    ) -> None:
        limits = map(str, (memory_bytes, timeout_s, compile_s))
        self._command = [_python(), "-m", CHILD, str(info_file.resolve()), *limits]
        self._info_file = info_file
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None  # the last one started here
        self._is_joined = False  # another instance started the child
        self._socket: socket.socket | None = None
        self._received = b""
        self._unsent: list[bytes] = []
        self._start_by = 0.0  # the deadline of a start that has not succeeded yet
        self.pid: int | None = None  # the child's, once it has started

    def submit(self, number: int, kind: str, text: str) -> None:
        """Queues a guide, which the next `receive` sends. Returns at once.

        Raises:
            SandboxDied: the child process has ended since the last call.
        """
        if self._socket is None:
            self.start()
        elif not self._start_by and _has_ended(self._socket):
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
        """Finds or starts a child process. Returns at once, while the child still imports."""
        self.close()
        self._start_by = time.monotonic() + START_TIMEOUT_S
        self._connect()

    def _connect(self) -> None:
        address = _address(self._command, self._info_file)
        self._socket = socket.socket(socket.AF_UNIX)
        self._is_joined = True
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                self._socket.connect(address)
                break
            with socket.socket(socket.AF_UNIX) as listener:
                try:
                    listener.bind(address)
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
                    continue  # another instance was faster, and will listen in a moment
                listener.listen()
                self._socket.connect(address)
                self._is_joined = False
                self._child = subprocess.Popen(
                    self._command,
                    cwd=MODEL_FOLDER,
                    stdin=listener.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,  # xgrammar warns about each keyword that it ignores
                )
                break
        self._socket.settimeout(self._timeout_s)

    def wait_until_started(self) -> None:
        """Waits for START_TIMEOUT_S at most.

        Raises:
            RuntimeError: the child process does not start; the message says why.
        """
        while self._start_by and not self._has_started(self._start_by):
            pass

    def _has_started(self, end: float) -> bool:
        unsent, start_by = self._unsent, self._start_by
        try:
            greeting = self._message(min(end, self._start_by))
        except SandboxDied as error:
            if self._is_joined:  # it ended with its last connection, before it saw ours
                self._unsent, self._start_by = unsent, start_by
                self._connect()
                return False
            raise RuntimeError(f"the guide checker {self._command} does not start") from error
        if greeting is None:
            if time.monotonic() < self._start_by:
                return False
            greeting = {"error": f"it took longer than {START_TIMEOUT_S:g} s"}
            if self._child is not None and not self._is_joined:
                self._child.kill()  # else the next start would find it again
        elif not is_of_this_user(self._socket):
            greeting = {"error": "another user has taken its address"}
        if greeting["error"] is not None:
            self.close()
            raise RuntimeError(f"the guide checker does not start: {greeting['error']}")
        self._start_by, self.pid = 0.0, greeting["pid"]
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
        """Closes the connection. With its last one, the child kills its forks and ends."""
        self._received, self._unsent, self._start_by, self.pid = b"", [], 0.0, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # others use it, or it imports
                self._child.wait(END_TIMEOUT_S)


def is_of_this_user(connection: socket.socket | None) -> bool:
    """Whether the process at the other end is: any one may connect to an address, or take it."""
    assert connection is not None
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())


def _address(command: list[str], info_file: Path) -> str:
    """Linux's abstract address for the instances in one tritonserver whose children are alike."""
    stat = info_file.stat() if info_file.exists() else None  # a model may be built again
    made = None if stat is None else (stat.st_ino, stat.st_mtime_ns)
    processes = os.readlink("/proc/self/ns/pid")  # containers may share the network
    whole = json.dumps([command, made, processes, os.getppid()])
    return f"\0guides-{hashlib.sha256(whole.encode()).hexdigest()[:32]}"


def _has_ended(connection: socket.socket) -> bool:
    ready = select.poll()
    ready.register(connection, select.POLLIN)
    if not ready.poll(0):
        return False
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _python() -> str:
    """In a Triton stub sys.executable may not be a Python; python3 on PATH is its environment's."""
    if Path(sys.executable or "").name.startswith("python"):
        return sys.executable
    return shutil.which("python3") or "python3"
