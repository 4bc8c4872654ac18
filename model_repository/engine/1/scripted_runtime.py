"""The `scripted` runtime, for tests and benchmarks: given tokens at a given pace, at no cost.

One thread paces all streams: it steps them together, as in-flight batching does.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from inbox import Inbox
from playback import Playback
from port import Job
from script import Script
from stats import Stats

# How often a stream's last step is asked about where that is what it waits for.
LOOK_EVERY_S = 0.0005


class ScriptedRuntime:
    """See port.Runtime. A job's first step is taken at once, the others with all streams'."""

    def __init__(self, script: Script) -> None:
        self.stats = Stats()
        self._script = script
        self._inbox = Inbox()
        self._playing: list[Playback] = []
        self._thread = threading.Thread(target=self._work, name="scripted-runtime", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls, artifacts: Path) -> ScriptedRuntime:
        return cls(Script.read(artifacts / "script.json"))

    def submit(self, job: Job) -> None:
        self._inbox.submit(job)

    def cancel(self, request_id: str) -> bool:
        return self._inbox.cancel(request_id)

    def close(self) -> None:
        self._inbox.close()
        self._thread.join()

    def _work(self) -> None:
        due = time.monotonic()
        while self._wait_until(due):
            arrived = [Playback(job, self._script) for job in self._inbox.take()]
            now = time.monotonic()
            if now < due:
                self._playing += self._step(arrived)
                continue
            # a step that was late is made up for, but never more than one
            due = max(due + (self._script.step_s or LOOK_EVERY_S), now - self._script.step_s)
            began = self.stats.decode_tokens
            self._playing = self._step(self._playing + arrived)
            self.stats.rows_decoding = len(self._playing)
            self.stats.decode_steps += self.stats.decode_tokens > began
        for playback in [Playback(job, self._script) for job in self._inbox.take()]:
            playback.cancel()
        for playback in self._playing:
            playback.cancel()

    def _step(self, playing: list[Playback]) -> list[Playback]:
        """Returns those that go on."""
        going_on = []
        for playback in playing:
            self.stats.decode_tokens += playback.step()
            if playback.is_over:
                self._inbox.forget(playback.job)
            else:
                going_on.append(playback)
        return going_on

    def _wait_until(self, due: float) -> bool:
        """Or until a job comes; False when it is time to close."""
        inbox = self._inbox
        with inbox.changed:
            while not (inbox.has_arrived or inbox.is_closing):
                left_s = due - time.monotonic() if self._playing else None
                if left_s is not None and left_s <= 0:
                    break
                inbox.changed.wait(left_s)
            return not inbox.is_closing
