"""A bystander's process, as the runner of the attacks sees it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

from tests.fixtures.stack import ROOT
from tests.long.hostile.attack import Target
from tests.long.hostile.processes import Processes, engine_of

STEP_S = 0.02
LOOK_S = 0.12
STEADY_TOKENS = 100_000  # half an hour at 20 ms
ENGINE_TOKENS = 3_500  # of the demo model's context of 4,096


class Watch:
    """Its stream begins at once. Its owner closes it."""

    def __init__(
        self,
        target: Target,
        watched: Processes,
        *,
        is_on_engine: bool = False,
        guard_bytes: int | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.long.hostile.bystander"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        plan = {
            "target": asdict(target),
            "proxies": watched.proxies,
            "triton": watched.triton,
            "guard_bytes": guard_bytes,
            "engine": engine_of(watched, target.demo) if is_on_engine else None,
            "body": _body(target, is_on_engine=is_on_engine),
            "small": {
                "model": target.steady,
                "messages": [{"role": "user", "content": "Hi!"}],
                "max_tokens": 3,
            },
        }
        self._send(plan)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def figures(self, since: float, *, settles: bool = False) -> dict[str, Any]:
        """See bystander.figures. since: CLOCK_MONOTONIC, which all processes share.

        settles: they end when a small request that begins now is answered.
        """
        self._send({"since": since, "settles": settles})
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the bystander's process has ended; its error is above")
        return json.loads(line)

    def wait_flowing(self, within_s: float = 20) -> bool:
        """Whether the stream has half its pace at least, lately or within that time."""
        ends_at = time.monotonic() + within_s
        while self.figures(time.monotonic() - LOOK_S)["tokens"] < LOOK_S / STEP_S / 2:
            if time.monotonic() > ends_at:
                return False
            time.sleep(LOOK_S / 2)
        return True

    def _send(self, value: Any) -> None:
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()


def _body(target: Target, *, is_on_engine: bool) -> dict[str, Any]:
    return {
        "model": target.demo if is_on_engine else target.steady,
        "messages": [{"role": "user", "content": "Tell me a long story, please."}],
        "max_tokens": ENGINE_TOKENS if is_on_engine else STEADY_TOKENS,
        "ignore_eos": True,
        # the demo model soon repeats its end token, which is text only so: every token is an event
        "skip_special_tokens": False,
        "stream": True,
    }
