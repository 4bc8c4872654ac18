"""Kept prefixes take only memory that is free, and give it back."""

from __future__ import annotations

import pytest

from onnx_cpu.prefix_cache import FreeMemory, spare_bytes
from onnx_cpu.scheduler import Scheduler, SchedulerConfig
from port import GenerationInput, Job
from tests.doubles.decoder import TableDecoder
from tests.doubles.sink import KeptTokens
from tests.fixtures.stepped_scheduler import GREEDY, NoGuides


def test_prefixes_take_only_free_memory_and_give_it_back_also_while_idle():
    spare, now_s, decoder = [10**9], [0.0], TableDecoder(100, rows=3)
    scheduler = Scheduler(
        decoder,
        NoGuides(),
        SchedulerConfig(rows=2, step_tokens=64, kv_bytes=10**6),
        end_ids=frozenset(),
        ended=lambda job: None,
        memory=FreeMemory(lambda: spare[0], lambda: now_s[0]),
    )

    def kept_after(first_token: int) -> int:
        """Bytes of prefixes after one more prompt of 97 tokens."""
        prompt = list(range(first_token, first_token + 97))
        wanted = GenerationInput(prompt_ids=prompt, max_tokens=1, sampling=GREEDY)
        scheduler.add(Job(f"r{first_token}", wanted, KeptTokens()))
        while scheduler.has_work:
            scheduler.step()
        return scheduler.stats.kv_cached_bytes

    kept = kept_after(1)
    assert kept == 96 * decoder.kv.shape.token_bytes
    spare[0], now_s[0] = -kept // 2, 1.5
    scheduler.rest()
    assert scheduler.stats.kv_cached_bytes == kept // 2
    spare[0], now_s[0] = 0, 3.0
    assert kept_after(2) == kept // 2
    spare[0], now_s[0] = 10**9, 4.5
    assert kept_after(3) == kept // 2 + kept


@pytest.mark.parametrize(
    ("limit", "spare"), [(None, 4_096_000), ("max", 4_096_000), ("3000000", 1_200_000)]
)
def test_a_tenth_of_the_machines_and_the_containers_memory_is_spared(tmp_path, limit, spare):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 10000 kB\nMemFree: 1 kB\nMemAvailable: 5000 kB\nHuge: 0\n")
    if limit is not None:
        files = {"max": limit, "current": "2000000", "stat": "anon 7\ninactive_file 500000"}
        for name, text in files.items():
            (tmp_path / f"memory.{name}").write_text(text)
    assert spare_bytes(meminfo, tmp_path) == spare
