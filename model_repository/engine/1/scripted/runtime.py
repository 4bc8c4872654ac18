"""The thread of the `scripted` runtime, which steps all streams together, as a batch."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from inbox import Inbox
from port import Job
from scripted.playback import Playback, Script
from stats import Stats

# Without a pace, streams wait for their last tokens to be sent; this is how often they check.
CHECK_EVERY_S = 0.0005


class ScriptedRuntime:
    """See port.Runtime. A job takes its first step at once, and later ones with all streams."""

    def __init__(self, script: Script) -> None:
        self.stats = Stats()
        self.blocks = None
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
            # After a delay the next step comes early, but never more than one of them does.
            due = max(due + (self._script.step_s or CHECK_EVERY_S), now - self._script.step_s)
            began = self.stats.decode_tokens
            self._playing = self._step(self._playing + arrived)
            self.stats.rows_decoding = len(self._playing)
            self.stats.decode_steps += self.stats.decode_tokens > began
        for playback in [Playback(job, self._script) for job in self._inbox.take()]:
            playback.cancel()
        for playback in self._playing:
            playback.cancel()

    def _step(self, playing: list[Playback]) -> list[Playback]:
        """Returns those that are not over."""
        remaining = []
        for playback in playing:
            self.stats.decode_tokens += playback.step()
            if playback.is_over:
                self._inbox.forget(playback.job)
            else:
                remaining.append(playback)
        return remaining

    def _wait_until(self, due: float) -> bool:
        """Waits until then, or until a job arrives; False when it is time to close."""
        inbox = self._inbox
        with inbox.changed:
            while not (inbox.has_arrived or inbox.is_closing):
                left_s = due - time.monotonic() if self._playing else None
                if left_s is not None and left_s <= 0:
                    break
                inbox.changed.wait(left_s)
            return not inbox.is_closing
