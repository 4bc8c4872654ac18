"""In-flight batching, step by step, against onnxruntime-genai's Generator.

Whatever else is in the batch, comes, goes, is cancelled or preempted: each request's tokens are
the ones it has alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from port import Guide, SamplingParams
from tests.fixtures.examples import examples
from tests.fixtures.stepped_scheduler import ROWS, Bench, decoder, prompt


@dataclass
class Arrival:
    length: int
    seed: int  # equal seeds: one prompt is the beginning of the other
    max_tokens: int
    priority: int
    wait: int  # steps before it comes
    leaves_after: int | None  # tokens


arrivals = st.lists(
    st.builds(
        Arrival,
        length=st.integers(1, 150),
        seed=st.integers(0, 3),
        max_tokens=st.integers(1, 30),
        priority=st.integers(0, 2),
        wait=st.integers(0, 8),
        leaves_after=st.one_of(st.none(), st.integers(0, 10)),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(arrivals=arrivals, kv_tokens=st.sampled_from([250, 600, 10_000]))
def test_every_batch_gives_each_request_the_oracles_tokens(artifacts, family, arrivals, kv_tokens):
    bench = Bench(artifacts / family, kv_tokens=kv_tokens)
    for arrival in arrivals:
        bench.run(steps=arrival.wait)
        job = bench.add(prompt(150, arrival.seed)[: arrival.length], arrival.max_tokens,
                        priority=arrival.priority)  # fmt: skip
        leaves_after = arrival.leaves_after
        if leaves_after is not None:

            def leave(count, job=job, leaves_after=leaves_after):
                if count >= leaves_after:
                    job.is_cancelled = True

            job.sink.after = leave
            job.is_cancelled = leaves_after == 0
    bench.run()
    for job in bench.jobs:
        if job.sink.end == "cancelled":
            assert job.sink.ids == bench.right(job)[: len(job.sink.ids)]
        else:
            assert job.sink.ids == bench.right(job)
            assert job.sink.end in ("stop", "length")
    assert sorted(map(id, bench.ended)) == sorted(map(id, bench.jobs))
    stats = bench.scheduler.stats
    assert stats.kv_row_bytes == stats.rows_decoding == stats.rows_prefilling == stats.waiting == 0
    assert stats.kv_cached_bytes <= kv_tokens * decoder(artifacts / family).kv.shape.token_bytes


def test_a_seed_gives_the_same_tokens_alone_in_company_and_after_preemption(artifacts):
    folder = artifacts / "llama"
    sampling = SamplingParams(seed=7, top_p=0.9, repetition_penalty=1.2, frequency_penalty=0.3)
    alone = Bench(folder)
    single = alone.add(prompt(30), 60, sampling)
    alone.run()
    together = Bench(folder, rows=2)
    same = together.add(prompt(30), 60, sampling)
    together.add(prompt(40, 1), 60, SamplingParams(seed=3))
    together.run(steps=20)
    for seed in range(4):
        together.add(prompt(50, seed + 2), 5, SamplingParams(seed=1), priority=5)
        together.run(steps=3)
    together.run()
    assert together.scheduler.stats.preemptions >= 2
    assert same.sink.ids == single.sink.ids


@pytest.mark.parametrize("steps", [20, 30])
def test_a_preempted_answer_goes_on_bit_for_bit(artifacts, steps):
    """Prefill alone gives other last bits. What is not cached is decoded once more."""
    folder, sampling = artifacts / "qwen2", SamplingParams(seed=5, log_probs=2)
    alone = Bench(folder, rows=1, most_replayed=60)
    whole = alone.add(prompt(33), 60, sampling)
    alone.run()
    bench = Bench(folder, rows=1, most_replayed=60)
    same = bench.add(prompt(33), 60, sampling)
    bench.run(steps=steps)
    bench.add(prompt(20, 1), 8, priority=1)
    bench.run()
    assert bench.scheduler.stats.preemptions == 1
    assert same.sink.tokens == whole.sink.tokens


def test_a_higher_priority_takes_the_row_of_the_lowest_which_resumes(artifacts):
    bench = Bench(artifacts / "phi3", rows=2)
    low = bench.add(prompt(20, 1), 40, priority=-1)
    middle = bench.add(prompt(20, 2), 40)
    bench.run(steps=5)
    before = len(low.sink.ids)
    high = bench.add(prompt(20, 3), 10, priority=1)
    bench.steps_until(lambda: high.sink.end)
    assert len(low.sink.ids) <= before + 1, "its row was taken"
    assert middle.sink.end is None
    bench.scheduler.rest()  # reports
    assert bench.scheduler.stats.preempted == 1
    bench.run()
    assert bench.scheduler.stats.preempted == 0
    for job in (low, middle, high):
        assert job.sink.ids == bench.right(job)


def test_rows_that_grow_beyond_the_memory_give_way_and_come_back(artifacts):
    bench = Bench(artifacts / "llama", kv_tokens=200)
    jobs = [bench.add(prompt(30, seed), 100) for seed in range(3)]
    bench.run()
    assert bench.scheduler.stats.preemptions > 0
    assert [job.sink.ids for job in jobs] == [bench.right(job) for job in jobs]


def test_the_stats_say_how_much_of_the_memory_rows_hold(artifacts):
    bench = Bench(artifacts / "llama", kv_tokens=320, rows=2)
    stats = bench.scheduler.stats
    assert (stats.kv_blocks, stats.kv_block_tokens, stats.most_rows) == (20, 16, 2)
    for seed in range(3):
        bench.add(prompt(40, seed), 20)
    bench.run(steps=1)
    assert (stats.rows, stats.waiting) == (2, 1)
    assert stats.kv_blocks_used == 6, "80 tokens in five blocks, and the generated ones"
    assert (stats.kv_fraction, stats.kv_blocks_free) == (0.3, 14)
    bench.run()
    assert (stats.rows, stats.waiting, stats.kv_blocks_used, stats.kv_fraction) == (0, 0, 0, 0.0)


def test_a_shared_beginning_comes_from_the_cache_but_not_under_another_salt(artifacts):
    bench = Bench(artifacts / "llama")
    first = bench.add(prompt(100))
    bench.run()
    again, other = bench.add([*prompt(100)[:90], 5, 6]), bench.add(prompt(100), cache_salt="x")
    bench.run()
    assert first.sink.cached_tokens == other.sink.cached_tokens == 0
    assert again.sink.cached_tokens == 80, "whole blocks of 16"
    assert again.sink.ids == bench.right(again)
    assert bench.scheduler.stats.prefix_hits == 1


def test_the_next_turn_of_a_chat_starts_from_the_last_answer(artifacts):
    bench = Bench(artifacts / "qwen2")
    first = bench.add(prompt(40), 41)
    bench.run()
    second = bench.add(prompt(40) + first.sink.ids + [5, 6, 7])
    bench.run()
    assert second.sink.cached_tokens == 80
    assert second.sink.ids == bench.right(second)


def test_equal_prompts_that_come_together_are_prefilled_once(artifacts):
    bench = Bench(artifacts / "llama")
    jobs = [bench.add(prompt(200), 10) for _ in range(4)]
    bench.run()
    assert bench.scheduler.stats.prefill_tokens == 200 + 3 * (200 - 192)
    assert all(job.sink.ids == bench.right(job) for job in jobs)


def test_the_least_recently_used_prefix_goes_first(artifacts):
    bench = Bench(artifacts / "llama", kv_tokens=300)
    for seed in (1, 2, 1, 3):
        bench.add(prompt(97, seed), 1)
        bench.run()
    kept, gone = bench.add(prompt(97, 1), 1), None
    bench.run()
    gone = bench.add(prompt(97, 2), 1)
    bench.run()
    assert kept.sink.cached_tokens == 96
    assert gone.sink.cached_tokens < 96
    assert bench.scheduler.stats.evicted_blocks > 0


def test_a_long_prompt_does_not_stall_running_streams(artifacts):
    bench = Bench(artifacts / "llama", step_tokens=32)
    running = bench.add(prompt(10), 100)
    bench.run(steps=3)
    long = bench.add(prompt(400, 1), 5)
    before = len(running.sink.ids)
    steps = bench.steps_until(lambda: long.sink.ids)
    assert steps >= 400 // 32
    assert len(running.sink.ids) == before + steps, "a token at every step meanwhile"


def test_a_short_prompt_overtakes_a_long_one_in_prefill(artifacts):
    bench = Bench(artifacts / "llama", step_tokens=16)
    long = bench.add(prompt(400, 1), 5)
    bench.run(steps=2)
    short = bench.add(prompt(20, 2), 5)
    assert bench.steps_until(lambda: short.sink.ids) <= 6
    assert not long.sink.ids
    bench.run()
    assert long.sink.ids == bench.right(long)


@pytest.mark.parametrize(("length", "runs"), [(31, 1), (32, 2), (47, 2), (48, 3)])
def test_a_short_rest_of_a_prompt_takes_no_run_of_its_own(artifacts, length, runs):
    bench = Bench(artifacts / "llama", stall_s=1e-9)  # for the fewest tokens: 16
    bench.add(prompt(10), 100)
    bench.run(steps=3)
    before = bench.scheduler.stats.prefill_steps
    late = bench.add(prompt(length, 1), 5)
    bench.steps_until(lambda: late.sink.ids)
    assert bench.scheduler.stats.prefill_steps - before == runs


def test_a_newcomer_among_seven_has_its_first_token_within_three_decode_steps(artifacts):
    bench = Bench(artifacts / "llama", rows=ROWS)
    for seed in range(ROWS - 1):
        bench.add(prompt(20, seed), 100)
    bench.run(steps=5)
    decoded = bench.scheduler.stats.decode_steps
    late = bench.add(prompt(60, 9), 5)
    bench.steps_until(lambda: late.sink.ids)
    assert bench.scheduler.stats.decode_steps - decoded <= 3


def test_the_row_of_a_cancelled_or_abandoned_request_is_free_at_the_next_step(artifacts):
    bench = Bench(artifacts / "llama", rows=2)
    cancelled, abandoned = bench.add(prompt(10), 400), bench.add(prompt(10, 1), 400)
    waiting = bench.add(prompt(10, 2), 5)
    bench.run(steps=5)
    assert not waiting.sink.ids
    cancelled.is_cancelled = abandoned.sink.is_gone = True
    bench.run(steps=1)
    assert cancelled.sink.end == abandoned.sink.end == "cancelled"
    assert waiting.sink.ids


def test_a_guide_that_compiles_holds_up_nobody_else(artifacts):
    bench = Bench(artifacts / "llama")
    guided = bench.add(prompt(10), 5, guide=Guide("json", ""))
    free = bench.add(prompt(10), 5)
    while free.sink.end is None:
        assert bench.scheduler.step()
    assert not bench.scheduler.step(), "there is nothing to do"
    bench.guides.asked[0].set_exception(ValueError("not a grammar"))
    bench.run()
    assert guided.sink.end == "refused"
    assert guided.sink.message == "guided_decoding_guide: not a grammar"


def test_a_guide_whose_request_left_meanwhile_is_forgotten(artifacts):
    bench = Bench(artifacts / "llama")
    guided = bench.add(prompt(10), 5, guide=Guide("json", ""))
    guided.is_cancelled = True
    bench.steps_until(lambda: guided.sink.end)
    bench.guides.asked[0].set_exception(ValueError("late"))
    bench.scheduler.step()
    assert guided.sink.end == "cancelled"
    assert not bench.scheduler.has_work


def test_a_token_outside_the_vocabulary_is_refused_by_name(artifacts):
    bench = Bench(artifacts / "llama")
    job = bench.add(prompt(10), sampling=SamplingParams(logit_bias=((10**6, 1.0),)))
    assert job.sink.end == "refused"
    assert "logit_bias" in job.sink.message
    assert bench.ended == [job]
