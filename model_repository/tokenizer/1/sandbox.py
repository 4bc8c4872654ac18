"""A child process that compiles guides and can be killed. See sandbox_main.py, which it runs."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 120.0  # it imports xgrammar, and torch with it
MAIN = Path(__file__).with_name("sandbox_main.py")


class SandboxTimeout(Exception):
    """The child did not answer in time and was killed."""


class SandboxDied(Exception):
    """The child went away before it answered."""


class Sandbox:
    """Started at the first use and after each end. It ends with this process, or by close()."""

    def __init__(self, info_file: Path, *, memory_bytes: int) -> None:
        self._command = [_python(), str(MAIN), str(info_file), str(memory_bytes)]
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def ask(self, kind: str, text: str, *, timeout_s: float) -> str | None:
        """Why this guide cannot be used; None where it can. The start is not in `timeout_s`.

        Raises:
            SandboxTimeout, SandboxDied: as they say; the next call starts a new child.
            RuntimeError: no child can be started.
        """
        if self._child is None or self._child.poll() is not None:
            self._start()
        question = json.dumps([kind, text]).encode() + b"\n"
        answer: str | None = self._exchange(question, timeout_s)["reason"]
        return answer

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _start(self) -> None:
        self.close()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                self._command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # xgrammar warns of each keyword that it ignores
            )
        try:
            greeting = self._exchange(b"", START_TIMEOUT_S)
        except (SandboxTimeout, SandboxDied) as error:
            raise RuntimeError(f"the guide checker {self._command} does not start") from error
        if greeting["error"] is not None:
            self.close()
            raise RuntimeError(f"the guide checker does not start: {greeting['error']}")

    def _exchange(self, question: bytes, timeout_s: float) -> Any:
        assert self._socket is not None
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(question, socket.MSG_NOSIGNAL)
            with self._socket.makefile("rb") as answers:
                line = answers.readline()
        except TimeoutError as error:
            self.close()
            raise SandboxTimeout from error
        except OSError as error:
            self.close()
            raise SandboxDied from error
        if not line.endswith(b"\n"):
            self.close()
            raise SandboxDied
        return json.loads(line)


def _python() -> str:
    """In a Triton stub sys.executable may be no Python; python3 on PATH is its environment's."""
    if Path(sys.executable or "").name.startswith("python"):
        return sys.executable
    return shutil.which("python3") or "python3"
