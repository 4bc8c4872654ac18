"""Hands jobs to a runtime that works in a thread of its own, and cancels them by request id."""

from __future__ import annotations

import threading
from collections import deque

from port import Job
from recent_ids import RecentIds


class Inbox:
    """Notifies `changed` when a job arrives and when the inbox closes.

    Hold `changed` to wait for it, or to read both flags at once.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.is_closing = False
        self._arrived: deque[Job] = deque()
        self._by_id: dict[str, list[Job]] = {}
        self._ended = RecentIds()

    @property
    def has_arrived(self) -> bool:
        return bool(self._arrived)

    def submit(self, job: Job) -> None:
        with self.changed:
            self._by_id.setdefault(job.request_id, []).append(job)
            self._arrived.append(job)
            self.changed.notify()

    def cancel(self, request_id: str) -> bool:
        """Flags the id's jobs, which the runtime then ends. See port.Runtime."""
        with self.changed:
            jobs = self._by_id.get(request_id, [])
            for job in jobs:
                job.is_cancelled = True
            return bool(jobs) or self._ended.has(request_id)

    def close(self) -> None:
        with self.changed:
            self.is_closing = True
            self.changed.notify()

    def take(self, at_most: int | None = None) -> list[Job]:
        """Removes and returns the jobs that have arrived, oldest first, `at_most` of them."""
        with self.changed:
            count = len(self._arrived) if at_most is None else min(at_most, len(self._arrived))
            return [self._arrived.popleft() for _ in range(count)]

    def forget(self, job: Job) -> None:
        """The job has ended."""
        with self.changed:
            jobs = self._by_id[job.request_id]
            jobs.remove(job)
            if not jobs:
                del self._by_id[job.request_id]
                self._ended.add(job.request_id)
