"""A continued answer is, token for token, the rest of the one that would have come.

Every request is generated once without a break, then continued after each of its tokens, by a
scheduler that knows nothing of the first run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guides.compiler import GuideCompiler
from onnx_cpu.scheduler import Scheduler, SchedulerConfig
from port import GenerationInput, Guide, Job, SamplingParams
from tests.doubles.decoder import TableDecoder
from tests.doubles.sink import KeptTokens
from tests.fixtures.examples import examples
from tests.fixtures.stepped_scheduler import ROWS, Bench, NoGuides, prompt

# Prefill and decode differ in the last bits of a logit, which may change a token. So real models
# compute every token again; a model without such noise is there for all other ways.
REPLAYS_ALL = 1000
GUIDES = (
    Guide("json", ""),
    Guide("regex", r"[a-z ]{3,40}(, [0-9]+)*"),
    Guide("json_schema", json.dumps({"type": "array", "items": {"type": "integer"}})),
)
low_ids = st.integers(3, 60)
samplings = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 1.7]),
        "top_k": st.sampled_from([0, 1, 5, 50]),
        "top_p": st.sampled_from([0.5, 0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05]),
        "repetition_penalty": st.sampled_from([0.8, 1.3]),
        "presence_penalty": st.sampled_from([-1.0, 0.7]),
        "frequency_penalty": st.sampled_from([-0.5, 0.5]),
        "logit_bias": st.lists(st.tuples(low_ids, st.floats(-5, 5)), max_size=4).map(tuple),
        "allowed_token_ids": st.just(tuple(range(64))),
        "min_tokens": st.integers(0, 12),
        "ignore_eos": st.booleans(),
        "stop_token_ids": st.frozensets(low_ids, max_size=8),
        "log_probs": st.integers(0, 3),
    },
)
requests = st.builds(
    GenerationInput,
    prompt_ids=st.builds(prompt, st.integers(1, 70), st.integers(0, 3)),
    max_tokens=st.integers(1, 30),
    sampling=st.builds(lambda params, seed: SamplingParams(seed=seed, **params), samplings,
                       st.integers(0, 2**64 - 1)),
    echoes_prompt=st.booleans(),
)  # fmt: skip


@pytest.fixture(scope="module")
def compilers(artifacts):
    """compilers(family) -> the compiler of its guides."""
    made: dict[str, GuideCompiler] = {}

    def of(family: str) -> GuideCompiler:
        if family not in made:
            info = artifacts / family / "guide.json"
            made[family] = GuideCompiler(info, cache_bytes=10_000_000, threads=1)
        return made[family]

    yield of
    for compiler in made.values():
        compiler.close()


def generated(bench: Bench, *wanted: GenerationInput) -> list[KeptTokens]:
    return answers(bench.scheduler, *wanted)


def answers(scheduler: Scheduler, *wanted: GenerationInput) -> list[KeptTokens]:
    """Each request's answer; all of them run together."""
    jobs = [Job(f"r{number}", one, KeptTokens()) for number, one in enumerate(wanted)]
    for job in jobs:
        scheduler.add(job)
    while scheduler.has_work:
        scheduler.step()
    return [job.sink for job in jobs]


def continued(wanted: GenerationInput, ids: list[int]) -> GenerationInput:
    return replace(wanted, generated_ids=ids, echoes_prompt=False)


def assert_every_cut_continues(
    new_scheduler: Callable[[], Scheduler], wanted: GenerationInput
) -> None:
    """Bit for bit: tokens, log-probabilities and the end."""
    (whole,) = answers(new_scheduler(), wanted)
    assert whole.end in ("stop", "length"), whole.message
    count = len(whole.ids)
    rests = [continued(wanted, whole.ids[:cut]) for cut in range(1, count + 1)]
    for cut, rest in enumerate(answers(new_scheduler(), *rests), 1):
        assert (rest.tokens, rest.end) == (whole.tokens[cut:], whole.end), f"cut at {cut}"
        assert rest.echoed is None


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(wanted=requests, kv_tokens=st.sampled_from([300, 10_000]))
def test_an_answer_that_is_cut_anywhere_continues_as_it_would_have(
    artifacts, family, wanted, kv_tokens
):
    def scheduler() -> Scheduler:
        folder = artifacts / family
        return Bench(folder, kv_tokens=kv_tokens, most_replayed=REPLAYS_ALL).scheduler

    assert_every_cut_continues(scheduler, wanted)


@settings(max_examples=examples(100))
@given(
    wanted=requests,
    most_replayed=st.sampled_from([0, 9, REPLAYS_ALL]),
    kv_tokens=st.sampled_from([150, 10_000]),
    step_tokens=st.sampled_from([1, 7, 64]),
)
def test_so_it_does_however_its_tokens_are_computed(wanted, most_replayed, kv_tokens, step_tokens):
    def scheduler() -> Scheduler:
        model = TableDecoder(300, rows=ROWS + 1)
        config = SchedulerConfig(
            rows=ROWS,
            step_tokens=step_tokens,
            kv_bytes=kv_tokens * model.kv.shape.token_bytes,
            most_replayed=most_replayed,
        )
        ends = frozenset({2, 70})
        return Scheduler(model, NoGuides(), config, end_ids=ends, ended=lambda job: None)

    assert_every_cut_continues(scheduler, wanted)


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(wanted=requests, guide=st.sampled_from(GUIDES))
def test_a_guide_continues_where_it_was(artifacts, family, compilers, wanted, guide):
    wanted = replace(wanted, guide=guide)

    def scheduler() -> Scheduler:
        guides = compilers(family)
        return Bench(artifacts / family, guides=guides, most_replayed=REPLAYS_ALL).scheduler

    assert_every_cut_continues(scheduler, wanted)


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi3"])
@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(wanted=requests, at=st.integers(0, 20), length=st.integers(2, 5))
def test_a_bad_word_that_begins_before_the_cut_is_not_completed(
    artifacts, family, wanted, at, length
):
    """The bad word is taken from the free answer, so it would come again."""
    (free,) = generated(Bench(artifacts / family), wanted)
    at = min(at, max(0, len(free.ids) - length))
    word = tuple(free.ids[at : at + length])
    wanted = replace(wanted, sampling=replace(wanted.sampling, bad_words=(word,)))

    def scheduler() -> Scheduler:
        return Bench(artifacts / family, most_replayed=REPLAYS_ALL).scheduler

    assert_every_cut_continues(scheduler, wanted)


def test_the_prompts_own_cache_is_used_and_counts_the_whole_continued_sequence(artifacts):
    bench = Bench(artifacts / "llama", most_replayed=REPLAYS_ALL)
    wanted = GenerationInput(prompt_ids=prompt(40), max_tokens=60, sampling=SamplingParams(seed=1))
    (whole,) = generated(bench, wanted)
    (rest,) = generated(bench, continued(wanted, whole.ids[:50]))
    assert rest.ids == whole.ids[50:]
    assert rest.cached_tokens == 80, "of 90 tokens, in whole blocks of 16"


@pytest.mark.parametrize("cached", [False, True])
def test_a_replayed_answer_has_the_same_bits_and_takes_a_step_a_token(artifacts, cached):
    """Prefill alone gives others, so the log-probabilities would differ in their last digits."""
    wanted = GenerationInput(
        prompt_ids=prompt(33), max_tokens=90, sampling=SamplingParams(seed=5, log_probs=2)
    )
    first = Bench(artifacts / "qwen2", most_replayed=60)
    (whole,) = generated(first, wanted)
    bench = first if cached else Bench(artifacts / "qwen2", most_replayed=60)
    before = bench.scheduler.stats.decode_steps
    (rest,) = generated(bench, continued(wanted, whole.ids[:60]))
    assert rest.tokens == whole.tokens[60:]
    replayed = 93 - rest.cached_tokens if cached else 60
    assert bench.scheduler.stats.decode_steps - before == replayed + 30 - 1
    (prefilled,) = generated(Bench(artifacts / "qwen2"), continued(wanted, whole.ids[:60]))
    assert prefilled.tokens != whole.tokens[60:]


@pytest.mark.parametrize(
    ("sampling", "generated_ids", "end"),
    [
        ({"stop_token_ids": frozenset({9})}, [5, 9], "stop"),
        ({}, [5] * 20, "length"),
        ({}, [5] * 21, "length"),
        ({"stop_token_ids": frozenset({9})}, [5] * 19 + [9], "stop"),
    ],
)
def test_an_answer_that_was_complete_ends_at_once(artifacts, sampling, generated_ids, end):
    bench = Bench(artifacts / "llama")
    job = bench.add([5], 20, SamplingParams(**sampling), generated_ids=generated_ids)
    assert (job.sink.ids, job.sink.end) == ([], end)
    assert bench.ended == [job]
    assert not bench.scheduler.has_work


@pytest.mark.parametrize(
    ("sampling", "generated_ids", "message"),
    [
        ({"stop_token_ids": frozenset({9})}, [5, 9, 6], "token 9 at position 1 ends the answer"),
        ({}, [5, 70_000], "resume_from names token 70000"),
        ({}, [-1], "resume_from names token -1"),
    ],
)
def test_ids_that_it_cannot_have_generated_are_refused(artifacts, sampling, generated_ids, message):
    bench = Bench(artifacts / "llama")
    job = bench.add([5], 20, SamplingParams(**sampling), generated_ids=generated_ids)
    assert job.sink.end == "refused"
    assert message in job.sink.message
    assert job.sink.message.startswith("resume_from: ")
    assert bench.ended == [job]


def test_a_generated_id_that_the_guide_refuses_is_named(artifacts, compilers):
    bench = Bench(artifacts / "llama", guides=compilers("llama"))
    wanted = GenerationInput(
        prompt_ids=[5], max_tokens=20, sampling=SamplingParams(seed=1), guide=GUIDES[2]
    )
    (whole,) = generated(bench, wanted)
    (free,) = generated(bench, replace(wanted, guide=Guide("regex", "[x-z]+")))
    broken = [*whole.ids[:2], free.ids[0]]
    (refused,) = generated(bench, continued(wanted, broken))
    assert refused.end == "refused"
    assert refused.message == (
        f"resume_from: the generated token {free.ids[0]} at position 2 does not follow the guide"
    )
