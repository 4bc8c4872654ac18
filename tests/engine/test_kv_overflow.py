"""A key or value that 16 bits do not hold ends its own stream with a named error."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_cpu.kv_rows import KvOverflow, KvRows, KvShape
from onnx_cpu.scheduler import Scheduler, SchedulerConfig
from port import GenerationInput, Job, SamplingParams
from tests.doubles.decoder import TableDecoder
from tests.doubles.sink import KeptTokens
from tests.fixtures.stepped_scheduler import ROWS, NoGuides

FATAL = 300  # a token


class OverflowingDecoder(TableDecoder):
    """FATAL has keys that are too large."""

    def prefill(self, row, ids, past_tokens, logits_from):
        if FATAL in ids:
            raise KvOverflow([row])
        return super().prefill(row, ids, past_tokens, logits_from)

    def decode(self, ids, past_tokens):
        if overflown := np.flatnonzero(ids == FATAL).tolist():
            raise KvOverflow(overflown)
        return super().decode(ids, past_tokens)


def answered(requests: list[GenerationInput]) -> list[KeptTokens]:
    """All at once."""
    model = OverflowingDecoder(301, rows=ROWS + 1)
    config = SchedulerConfig(
        rows=ROWS, step_tokens=64, kv_bytes=10_000 * model.kv.shape.token_bytes
    )
    scheduler = Scheduler(model, NoGuides(), config, end_ids=frozenset(), ended=lambda job: None)
    jobs = [Job(f"r{at}", wanted, KeptTokens()) for at, wanted in enumerate(requests)]
    for job in jobs:
        scheduler.add(job)
    while scheduler.has_work:
        scheduler.step()
    return [job.sink for job in jobs]


def request(prompt: list[int], *, fatal: bool = False) -> GenerationInput:
    bias = ((FATAL, 100.0),) if fatal else ((FATAL, -100.0),)
    sampling = SamplingParams(temperature=0, logit_bias=bias)
    return GenerationInput(prompt_ids=prompt, max_tokens=30, sampling=sampling)


@pytest.mark.parametrize("place", range(ROWS))
@pytest.mark.parametrize(
    "fatal", [request([5, FATAL, 6]), request([5, 6] * 20, fatal=True)], ids=["prompt", "answer"]
)
def test_the_stream_ends_with_an_error_and_the_others_do_not_notice(place, fatal):
    others = [request([7, 8, at]) for at in range(ROWS - 1)]
    alone = [answered([one])[0].ids for one in others]
    found = answered([*others[:place], fatal, *others[place:]])
    failed = found.pop(place)
    assert failed.end == "failed"
    assert "exceed 65,504" in failed.message
    assert "precision: fp32" in failed.message
    assert [one.ids for one in found] == alone
    assert {one.end for one in found} == {"length"}


@pytest.mark.parametrize("side", range(2))
@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [
        (65_504.0, np.float16, False),
        (-65_504.0, np.float16, False),
        (1e-8, np.float16, False),
        (np.inf, np.float16, True),
        (-np.inf, np.float16, True),
        (np.nan, np.float16, True),
        (1e30, np.float32, False),
    ],
)
def test_the_cache_finds_it_among_the_tokens_of_a_run(value, dtype, wanted, side):
    kv = KvRows(KvShape(sides=2, kv_heads=2, head_size=8, dtype=dtype), rows=3, context_length=64)
    kv.side(side, 0, 3)[1, 1, 20, 7] = value
    for row, start, stop, holds in [(1, 20, 21, 1), (1, 0, 64, 1), (1, 21, 64, 0), (2, 0, 64, 0)]:
        assert kv.has_overflown(row, start, stop) == (wanted and bool(holds))
