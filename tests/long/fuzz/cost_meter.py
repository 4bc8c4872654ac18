"""What a request costs the proxy, measured in a child process that may be killed."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from dataclasses import dataclass

from tests.fixtures.stack import ROOT
from tests.long.fuzz.cases import Case

START_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """loop_s: of the longest step of the event loop. is_killed: it ran over the time limit."""

    status: int | str
    loop_s: float
    total_s: float
    grown_bytes: int
    is_killed: bool = False


class CostMeter:
    """limit_s: wall time of one request; a child that takes longer is killed and replaced."""

    def __init__(self, limit_s: float = 20.0) -> None:
        self._limit_s = limit_s
        self._child: subprocess.Popen[str] | None = None

    def cost(self, case: Case) -> Cost:
        line = self._answer(case, self._limit_s if self._child else START_S + self._limit_s)
        if line:
            return Cost(**json.loads(line))
        self.close()
        limit = self._limit_s
        return Cost(status="killed", loop_s=limit, total_s=limit, grown_bytes=0, is_killed=True)

    def close(self) -> None:
        if self._child is None:
            return
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        self._child = None

    def _answer(self, case: Case, within_s: float) -> str:
        """Empty where it does not come in time, or the child has died."""
        if self._child is None:
            self._child = self._started()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(case.written() + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            return ""
        is_ready, _, _ = select.select([self._child.stdout], [], [], within_s)
        return self._child.stdout.readline() if is_ready else ""

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.long.fuzz.cost_child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
