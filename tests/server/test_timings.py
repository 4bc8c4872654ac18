"""The engine's times over the whole stack."""

from __future__ import annotations

import time
import uuid
from typing import Any

WORDS = "The quick brown fox jumps over the lazy dog. "


def timings(client, prompt: str, **fields: object) -> dict[str, Any]:
    """Of an answer whose prompt is not in the prefix cache."""
    extra = {"include_timings": True, "ignore_eos": True, "cache_salt": uuid.uuid4().hex}
    answer = client.completions.create(
        model="demo", prompt=prompt, temperature=0, extra_body=extra, **fields
    )
    return answer.timings


def test_queue_prefill_and_decode_are_parts_of_the_requests_time(client):
    began = time.perf_counter()
    found = timings(client, WORDS, max_tokens=20)
    took_ms = (time.perf_counter() - began) * 1000
    parts_ms = [found[name] for name in ("queue_ms", "prompt_ms", "predicted_ms")]
    assert all(part_ms >= 0 for part_ms in parts_ms)
    assert 0 < sum(parts_ms) <= took_ms
    assert (found["predicted_n"], found["cache_n"]) == (20, 0)
    assert found["prompt_n"] > 5
    assert found["prompt_ms"] > 0
    assert found["predicted_ms"] > 0
