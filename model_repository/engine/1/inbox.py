"""The jobs of a runtime that works in a thread of its own: they arrive, and are cancelled by id."""

from __future__ import annotations

import threading
from collections import deque

from port import Job


class Inbox:
    """`changed` is notified of what arrives and of closing; hold it to wait, or to look at both."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.is_closing = False
        self._arrived: deque[Job] = deque()
        self._by_id: dict[str, list[Job]] = {}

    @property
    def has_arrived(self) -> bool:
        return bool(self._arrived)

    def submit(self, job: Job) -> None:
        with self.changed:
            self._by_id.setdefault(job.request_id, []).append(job)
            self._arrived.append(job)
            self.changed.notify()

    def cancel(self, request_id: str) -> bool:
        """Whether there is such a job; it says itself that it is cancelled."""
        with self.changed:
            jobs = self._by_id.get(request_id, [])
            for job in jobs:
                job.is_cancelled = True
            return bool(jobs)

    def close(self) -> None:
        with self.changed:
            self.is_closing = True
            self.changed.notify()

    def take(self, at_most: int | None = None) -> list[Job]:
        """What has arrived since the last time, the first ones if there are more than that."""
        with self.changed:
            count = len(self._arrived) if at_most is None else min(at_most, len(self._arrived))
            return [self._arrived.popleft() for _ in range(count)]

    def forget(self, job: Job) -> None:
        """It has ended."""
        with self.changed:
            jobs = self._by_id[job.request_id]
            jobs.remove(job)
            if not jobs:
                del self._by_id[job.request_id]
