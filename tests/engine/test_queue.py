"""A long queue: the cost of one scheduler step is the same however many requests wait."""

from __future__ import annotations

import time

import pytest

from port import SamplingParams
from tests.fixtures.stepped_scheduler import Bench, prompt

STEPS = 60
ENDLESS = SamplingParams(temperature=0, ignore_eos=True)


def step_cpu_s(bench: Bench) -> float:
    """Of this thread, which is all of the scheduler and of a decoder with one thread."""
    began = time.thread_time()
    for _ in range(STEPS):
        bench.scheduler.step()
    return (time.thread_time() - began) / STEPS


def queue_of(artifacts, waiting: int, length: int = 100, **settings) -> Bench:
    bench = Bench(artifacts / "llama", **settings)
    for _ in range(waiting):
        bench.add(prompt(length), 300, ENDLESS)
    return bench


@pytest.mark.parametrize("is_begun", [False, True], ids=["while prefilling", "while decoding"])
def test_a_step_with_5000_equal_prompts_waiting_costs_as_much_as_with_none(artifacts, is_begun):
    few, many = (queue_of(artifacts, count, step_tokens=8) for count in (4, 5000))
    for bench in (few, many):
        bench.run(steps=60 if is_begun else 1)
    step_cpu_s(few)
    alone, crowded = min(step_cpu_s(few), step_cpu_s(few)), step_cpu_s(many)
    assert many.scheduler.stats.waiting > 4900
    assert crowded < 3 * alone + 0.001


def test_equal_prompts_behind_one_prefill_hold_up_no_other_prompt(artifacts):
    bench = queue_of(artifacts, 200, length=400, step_tokens=16)
    bench.run(steps=2)
    other = bench.add(prompt(20, 9), 5)
    assert bench.steps_until(lambda: other.sink.ids) < 20
    assert not bench.jobs[1].sink.ids


def test_a_prompt_that_shares_only_the_start_does_not_wait_for_the_whole_prefill(artifacts):
    bench = Bench(artifacts / "llama", step_tokens=16)
    long = bench.add(prompt(400), 5)
    bench.run(steps=1)
    short = bench.add([*prompt(400)[:64], 5, 6, 7], 5)
    bench.steps_until(lambda: short.sink.ids)
    assert not long.sink.ids
    assert short.sink.cached_tokens == 64
    bench.run()
    assert short.sink.ids == bench.right(short)


def test_those_that_wait_behind_a_prefill_that_is_cancelled_are_served(artifacts):
    bench = queue_of(artifacts, 3, length=400, step_tokens=16)
    bench.run(steps=2)
    bench.jobs[0].is_cancelled = True
    bench.steps_until(lambda: bench.jobs[1].sink.ids and bench.jobs[2].sink.ids)


def test_those_that_leave_a_long_queue_are_all_found(artifacts):
    bench = queue_of(artifacts, 2000)
    for job in bench.jobs[4:]:
        job.is_cancelled = True
    bench.steps_until(lambda: all(job.sink.end == "cancelled" for job in bench.jobs[4:]))
