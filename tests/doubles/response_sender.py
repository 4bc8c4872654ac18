"""Triton's response sender of one request, which keeps what it is given."""

from __future__ import annotations

import threading
import time


class Sender:
    """Keeps (when, tensors, error, flags) of each response."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, dict, object, int]] = []
        self.is_over = threading.Event()
        self.is_gone = self.is_broken = False

    def send(self, response=None, flags=0) -> None:
        if self.is_broken:
            raise RuntimeError("the pipe is gone")
        tensors = {t.name: t.array for t in response.output_tensors} if response else {}
        error = response.error if response else None
        self.sent.append((time.monotonic(), tensors, error, flags))
        if flags:
            self.is_over.set()

    def is_cancelled(self) -> bool:
        return self.is_gone

    @property
    def ids(self) -> list[list[int]]:
        return [
            tensors["output_ids"].ravel().tolist()
            for _, tensors, _, _ in self.sent
            if "output_ids" in tensors
        ]
