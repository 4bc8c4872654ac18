"""Ten thousand requests of the onnx runtime: half of them cancelled, nothing left."""

from __future__ import annotations

import gc
import threading

import numpy as np
import psutil

from port import GenerationInput, Job
from tests.doubles.sink import KeptTokens
from tests.fixtures.onnx_runtimes import (
    runtime,
)
from tests.fixtures.stack import HANG_S, eventually


def test_ten_thousand_requests_with_random_cancels_leave_nothing_behind(artifacts):
    running = runtime(artifacts / "llama", max_rows="16")
    random = np.random.default_rng(3)
    process = psutil.Process()

    def run(count: int) -> int:
        """So many requests, 64 at a time at most; the process's memory after them, in bytes."""
        gate, sinks = threading.Semaphore(64), []
        for number in range(count):
            gate.acquire()
            leaves_after = int(random.integers(1, 12)) if random.random() < 0.5 else None
            sinks.append(submit(number, leaves_after, gate.release))
        for sink in sinks:
            assert sink.is_over.wait(HANG_S)
        stats = running.stats
        eventually(lambda: not (stats.kv_row_bytes or stats.waiting), 5, "it is idle")
        return process.memory_info().rss

    def submit(number: int, leaves_after: int | None, over) -> KeptTokens:
        request_id = str(number)

        def leave(count: int) -> None:
            if count == leaves_after:
                running.cancel(request_id)

        sink = KeptTokens(leave, over=over)
        prompt = random.integers(3, 250, int(random.integers(1, 60))).tolist()
        wanted = GenerationInput(
            prompt_ids=prompt, max_tokens=int(random.integers(1, 16)), priority=number % 3
        )
        running.submit(Job(request_id, wanted, sink))
        return sink

    before = run(5_000)  # caches fill up, and the tests' own sinks take room
    after = run(5_000)
    stats = running.stats
    assert stats.rows_decoding == stats.rows_prefilling == stats.waiting == stats.kv_row_bytes == 0
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Job)]
    assert after - before < 20_000_000
    running.close()
