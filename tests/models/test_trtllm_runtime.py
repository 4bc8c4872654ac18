"""The tensorrt_llm runtime through its port, on a stand-in that keeps to upstream's signatures."""

from __future__ import annotations

import json
import sys
import threading
from random import Random

import pytest
from port import GenerationInput, Guide, Job, SamplingParams
from trtllm_library import Library, StartFailed
from trtllm_results import UNLIKELY
from trtllm_runtime import TrtllmRuntime

from tests.doubles.sink import KeptTokens
from tests.fixtures.stack import eventually

PROMPT = [5, 6, 7]
GREEDY = SamplingParams(temperature=0)
PARAMETERS = {
    "trtllm_backend": "pytorch",
    "llm_args": json.dumps({"backend": "pytorch", "guided_decoding_backend": "xgrammar"}),
    "end_ids": "2",
    "logits_size": "100",
}


@pytest.fixture
def runtime(tmp_path):
    """runtime(script, **parameters) -> one started over a model with that stand_in.json."""
    started, deaths = [], []

    def start(script=None, died=deaths.append, **parameters):
        (tmp_path / "engine").mkdir()
        (tmp_path / "engine" / "stand_in.json").write_text(json.dumps(script or {}))
        started.append(TrtllmRuntime.load(tmp_path, {**PARAMETERS, **parameters}, died))
        return started[0]

    yield start
    for one in started:
        one.close()
    assert not deaths


def generate(running, sampling=GREEDY, prompt=PROMPT, max_tokens=5, wait=True, **more):
    sink = KeptTokens()
    wanted = GenerationInput(
        prompt_ids=list(prompt), max_tokens=max_tokens, sampling=sampling, **more
    )
    running.submit(Job("r", wanted, sink))
    if wait:
        assert sink.is_over.wait(5)
    return sink


def sent(running):
    """The prompt, SamplingParams and salt of each request that reached TensorRT-LLM."""
    return running._llm._executor.requests


def test_tokens_come_to_the_limit(runtime):
    sink = generate(runtime())
    assert (sink.ids, sink.end) == ([5, 6, 7, 5, 6], "length")


def test_several_tokens_a_response_and_a_last_one_without_any(runtime):
    sink = generate(runtime({"tokens_a_response": 2, "empty_last": True}))
    assert (sink.ids, sink.end) == ([5, 6, 7, 5, 6], "length")


@pytest.mark.parametrize(
    ("sampling", "ids", "end"),
    [
        (GREEDY, [5, 2], "stop"),
        (SamplingParams(temperature=0, ignore_eos=True), [5, 2, 9, 5, 2], "length"),
        (SamplingParams(temperature=0, stop_token_ids=frozenset({5})), [5], "stop"),
        (SamplingParams(temperature=0, min_tokens=4), [5, 2, 9, 5, 2], "stop"),
    ],
)
def test_ends_are_where_they_are_asked_for(runtime, sampling, ids, end):
    sink = generate(runtime({"answer": [5, 2, 9]}), sampling)
    assert (sink.ids, sink.end) == (ids, end)


def test_all_of_several_end_tokens_end_and_are_in_the_output(runtime):
    running = runtime({"answer": [5, 3, 9]}, end_ids="2,3")
    assert generate(running).ids == [5, 3]
    ignoring = SamplingParams(temperature=0, ignore_eos=True)
    assert generate(running, ignoring).ids == [5, 3, 9, 5, 3]
    held_back = SamplingParams(temperature=0, min_tokens=2)
    assert "min_tokens: TensorRT-LLM holds back one" in generate(running, held_back).message


def test_what_is_said_reaches_tensorrt_llm_under_its_names(runtime):
    running = runtime()
    sampling = SamplingParams(
        temperature=0.7,
        top_k=4,
        top_p=0.9,
        min_p=0.1,
        seed=11,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        bad_words=((8, 9), (10,)),
        min_tokens=2,
    )
    generate(running, sampling, cache_salt="tenant")
    ((prompt, params, salt),) = sent(running)
    assert (prompt, salt) == (PROMPT, "tenant")
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (0.7, 4, 0.9, 0.1)
    assert (params.seed, params.min_tokens, params.end_id) == (11, 2, 2)
    assert params.repetition_penalty == 1.1
    assert (params.presence_penalty, params.frequency_penalty) == (0.2, 0.3)
    assert params.prompt_ignore_length == len(PROMPT), "they count what was generated"
    assert params._get_bad_words() == [[8, 9], [10]]
    assert (params.detokenize, params.include_stop_str_in_output) == (False, True)


def test_where_nothing_is_said_it_samples_and_with_a_seed_of_its_own(runtime):
    running = runtime()
    generate(running, SamplingParams())
    generate(running, SamplingParams())
    (_, first, _), (_, second, _) = sent(running)
    assert not first.is_greedy()
    assert (first.temperature, first.top_k, first.top_p) == (1.0, 0, 1.0)
    assert first.seed != second.seed
    assert first.min_p is first.repetition_penalty is first.prompt_ignore_length is None


@pytest.mark.parametrize(
    "sampling", [GREEDY, SamplingParams(top_p=0), SamplingParams(top_k=1, temperature=2)]
)
def test_greedy_is_asked_for_as_top_k_1(runtime, sampling):
    running = runtime()
    generate(running, sampling)
    assert sent(running)[0][1].is_greedy()


def test_bias_and_allowed_tokens(runtime):
    running = runtime()
    only = SamplingParams(temperature=0, allowed_token_ids=(40,))
    assert generate(running, only).ids == [40] * 5
    biased = SamplingParams(temperature=0, logit_bias=((6, -100.0), (41, 5.0)))
    assert generate(running, biased).ids == [5, 41, 7, 5, 41]


@pytest.mark.parametrize("log_probs", [0, 2])
def test_log_probs_of_the_tokens_and_of_the_alternatives(runtime, log_probs):
    sink = generate(runtime({"tokens_a_response": 2}), SamplingParams(log_probs=log_probs))
    assert [token.log_probs.sampled for token in sink.tokens] == [-0.5] * 5
    top = [((id_, -0.5), (id_ + 1, -1.5))[:log_probs] for id_ in sink.ids]
    assert [token.log_probs.top for token in sink.tokens] == top


def test_a_token_that_is_not_among_the_likely_ones_is_told_as_openai_tells_it(runtime):
    running = runtime({"alternatives": [2]})
    sink = generate(running, SamplingParams(log_probs=1), max_tokens=1)
    assert sink.tokens[0].log_probs.sampled == UNLIKELY
    assert sink.tokens[0].log_probs.top == ((6, -1.5),)
    missing = generate(running, SamplingParams(log_probs=2), max_tokens=1)
    assert missing.end == "failed"
    assert "1 alternatives of 2" in missing.message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"priority": 3}, "priority: TensorRT-LLM 1.2.1 has no priority"),
        ({"sampling": SamplingParams(logit_bias=((100, 1.0),))}, "logit_bias names token 100; the"),
        ({"sampling": SamplingParams(allowed_token_ids=(-1,))}, "allowed_token_ids names token -1"),
        ({"prompt": [5] * 9000}, "prompt: The sum of prompt length"),
        (
            {
                "guide": Guide("regex", "a"),
                "sampling": SamplingParams(temperature=0, allowed_token_ids=(5,)),
            },
            "cannot be combined",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(runtime, more, message):
    running = runtime()
    sink = generate(running, **more)
    assert sink.end == "refused"
    assert message in sink.message
    assert not sent(running)


@pytest.mark.parametrize(
    ("parameters", "guide", "message"),
    [
        ({"llm_args": "{}"}, Guide("regex", "a"), "started without guided decoding"),
        ({"trtllm_backend": "tensorrt"}, Guide("structural_tag", "{}"), "PyTorch backend"),
    ],
)
def test_a_guide_that_would_be_ignored_is_refused(runtime, parameters, guide, message):
    sink = generate(runtime(**parameters), guide=guide)
    assert sink.end == "refused"
    assert message in sink.message


@pytest.mark.parametrize(
    ("guide", "field", "value"),
    [
        (Guide("json", ""), "json", '{"type": ["object", "array"]}'),
        (Guide("json_schema", "{}"), "json", "{}"),
        (Guide("regex", "a+"), "regex", "a+"),
        (Guide("ebnf_grammar", "root ::= 'a'"), "grammar", "root ::= 'a'"),
        (Guide("structural_tag", "{}"), "structural_tag", "{}"),
    ],
)
def test_each_kind_of_guide_has_its_field(runtime, guide, field, value):
    running = runtime({"ignores_guides": True})
    generate(running, guide=guide)
    guided = sent(running)[0][1].guided_decoding
    assert guided.given() == [field]
    assert getattr(guided, field) == value


def test_a_higher_priority_is_a_higher_number_between_0_and_1():
    from trtllm_sampling import unit_priority

    numbers = [unit_priority(priority) for priority in (-1000, -1, 0, 1, 2, 1000)]
    assert numbers == sorted(set(numbers))
    assert (numbers[0] > 0, numbers[2], numbers[-1] < 1) == (True, 0.5, True)


def test_cached_tokens_are_told_and_counted_and_a_salt_keeps_them_apart(runtime):
    running = runtime()
    prompt = list(range(5, 75))
    assert generate(running, prompt=prompt).cached_tokens == 0
    assert generate(running, prompt=prompt).cached_tokens == 64
    assert generate(running, prompt=prompt, cache_salt="other").cached_tokens == 0
    assert (running.stats.cached_tokens, running.stats.prefix_hits) == (64, 1)


def test_a_cancel_ends_the_job_and_tells_tensorrt_llm(runtime):
    running = runtime({"step_s": 0.01})
    sink = generate(running, max_tokens=10_000, wait=False)
    eventually(lambda: sink.ids, 2, "it runs")
    assert running.cancel("r")
    assert sink.is_over.wait(1)
    assert sink.end == "cancelled"
    eventually(lambda: not running._llm._executor._running, 1, "it is aborted there")
    eventually(lambda: not running.cancel("r"), 1, "it is forgotten")


def test_a_cancel_right_after_the_submit_counts(runtime):
    running = runtime()
    sink = generate(running, max_tokens=10_000, wait=False)
    assert running.cancel("r")
    assert sink.is_over.wait(1)
    assert sink.end == "cancelled"


def test_a_caller_that_is_gone_ends_it(runtime):
    running = runtime({"step_s": 10})
    sink = generate(running, max_tokens=10_000, wait=False)
    sink.is_gone = True
    assert sink.is_over.wait(1), "also while it waits for its first token"
    assert sink.end == "cancelled"


def test_a_request_that_fails_leaves_the_others_alone(runtime):
    running = runtime({"error_at": 3})
    failed, short = generate(running, max_tokens=5), generate(running, max_tokens=2)
    assert (failed.end, short.end) == ("failed", "length")
    assert "CUDA error in one request" in failed.message


def test_a_crashed_executor_ends_all_jobs_and_says_so_once(runtime):
    deaths: list[str] = []
    died = threading.Event()

    def die(reason: str) -> None:
        deaths.append(reason)
        died.set()

    running = runtime({"crash_at": 20, "step_s": 0.005}, died=die)
    sinks = [generate(running, max_tokens=10_000, wait=False) for _ in range(3)]
    assert died.wait(5)
    assert [sink.end for sink in sinks] == ["failed"] * 3, "before anyone is told"
    assert all("CUDA out of memory" in sink.message for sink in sinks)
    late = generate(running)
    assert late.end == "failed"
    assert "executor has ended" in late.message
    assert deaths == ["TensorRT-LLM's executor has ended: Error in thread: CUDA out of memory"]


def test_an_executor_that_went_while_nobody_asked_is_noticed(runtime):
    died = threading.Event()
    running = runtime(died=lambda reason: died.set())
    running._llm._executor.shutdown()
    assert died.wait(2)


def test_a_close_ends_what_runs(runtime):
    running = runtime()
    sink = generate(running, max_tokens=10_000, wait=False)
    eventually(lambda: sink.ids, 2, "it runs")
    running.close()
    assert sink.end == "cancelled"
    assert running._llm._executor is None
    running.close = lambda: None


def test_many_requests_of_which_half_are_cancelled_leave_nothing_behind(runtime):
    running, random = runtime(), Random(1)
    sinks = []
    for number in range(400):
        sinks.append(KeptTokens())
        wanted = GenerationInput(prompt_ids=PROMPT, max_tokens=random.randint(1, 9))
        running.submit(Job(str(number), wanted, sinks[-1]))
        if random.random() < 0.5:
            running.cancel(str(random.randint(0, number)))
    for sink in sinks:
        assert sink.is_over.wait(10)
        assert sink.end in ("length", "cancelled")
    eventually(lambda: not running._jobs, 1, "all are forgotten")
    assert not running._tasks
    assert not running._llm._executor._running
    assert {sink.end for sink in sinks} == {"length", "cancelled"}


def test_its_statistics_become_ours(runtime):
    running = runtime(llm_args=json.dumps({"enable_iter_perf_stats": True}))
    generate(running, max_tokens=20)
    eventually(lambda: running.stats.decode_steps, 5, "iterations are counted")
    assert running.stats.decode_tokens == running.stats.decode_steps
    assert running.stats.decode_seconds == pytest.approx(running.stats.decode_steps / 1000)


@pytest.mark.parametrize(
    ("script", "parameters", "message"),
    [
        ({"start_error": "no CUDA device"}, {}, r"1\.2\.1 cannot start the model in .*no CUDA"),
        ({"stillborn": True}, {}, "its executor is not running"),
        ({}, {"llm_args": '{"tp": 2}'}, r"with \{\"tp\": 2\}: LLM got invalid argument: tp"),
        ({}, {"trtllm_backend": "cuda"}, "trtllm_backend is 'cuda', must be 'pytorch' or"),
    ],
)
def test_a_start_that_fails_says_why(runtime, script, parameters, message):
    with pytest.raises(StartFailed, match=message):
        runtime(script, **parameters)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt_llm", None)
    with pytest.raises(StartFailed, match=r"pytorch backend cannot be imported.*container"):
        Library.load("pytorch")
