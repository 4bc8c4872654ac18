"""Requests as TensorRT-LLM's sampling parameters, and results as deltas; on the stand-in."""

from __future__ import annotations

import pytest

from port import Guide, SamplingParams
from tests.fixtures.trtllm_runtime import GREEDY, PROMPT, generate, sent
from trtllm.generator import UNLIKELY


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
    assert (
        "min_tokens: TensorRT-LLM supports min_tokens only" in generate(running, held_back).message
    )


@pytest.mark.parametrize("log_probs", [None, 0])
def test_an_end_token_that_is_not_in_the_output_ends_it_too(runtime, log_probs):
    """As with TRTLLMSampler. The last response then brings no log-probabilities either."""
    running = runtime({"answer": [5, 6, 2], "hides_end": True})
    sink = generate(running, SamplingParams(temperature=0, log_probs=log_probs))
    assert (sink.ids, sink.end) == ([5, 6], "stop")


def test_more_of_the_likeliest_tokens_than_its_kernels_take_are_refused(runtime):
    running = runtime(logits_size="5000")
    assert (
        "top_k is 1025: TensorRT-LLM accepts at most 1024"
        in generate(running, SamplingParams(top_k=1025)).message
    )
    generate(running, SamplingParams(top_k=1024))
    generate(running, SamplingParams(top_k=5000))  # all of them
    assert [params.top_k for _, params, _ in sent()] == [1024, 0]


def test_min_tokens_does_not_hold_back_a_stop_token_and_says_so(runtime):
    stop = SamplingParams(
        temperature=0, min_tokens=2, ignore_eos=True, stop_token_ids=frozenset({5})
    )
    assert "min_tokens: TensorRT-LLM supports min_tokens only" in generate(runtime(), stop).message


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
    ((prompt, params, salt),) = sent()
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
    (_, first, _), (_, second, _) = sent()
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
    assert sent()[0][1].is_greedy()


def test_bias_and_allowed_tokens(runtime):
    running = runtime()
    only = SamplingParams(temperature=0, allowed_token_ids=(40,))
    assert generate(running, only).ids == [40] * 5
    biased = SamplingParams(temperature=0, logit_bias=((6, -100.0), (41, 5.0)))
    assert generate(running, biased).ids == [5, 41, 7, 5, 41]


@pytest.mark.parametrize(
    ("most", "wanted", "asked"),
    [("20", None, None), ("20", 0, 20), ("1", 1, 1), ("", None, None), ("", 0, 0), ("", 3, 3)],
)
def test_log_probs_are_asked_for_as_the_version_reports_the_sampled_token(
    runtime, most, wanted, asked
):
    running = runtime(max_log_probs=most)
    sink = generate(running, SamplingParams(temperature=0, log_probs=wanted), max_tokens=1)
    assert sent()[0][1].logprobs == asked
    if wanted is not None:
        assert sink.tokens[0].log_probs.sampled == -0.5
        assert len(sink.tokens[0].log_probs.top) == wanted


def test_a_token_that_is_not_among_the_likely_ones_is_told_as_openai_tells_it(runtime):
    running = runtime({"alternatives": [2]})
    sink = generate(running, SamplingParams(log_probs=1), max_tokens=1)
    assert sink.tokens[0].log_probs.sampled == UNLIKELY
    assert sink.tokens[0].log_probs.top == ((6, -1.5),)
    missing = generate(running, SamplingParams(log_probs=2), max_tokens=1)
    assert missing.end == "failed"
    assert "1 alternatives, not 2" in missing.message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"priority": 3}, "priority: TensorRT-LLM 1.2.1 does not support priority"),
        ({"sampling": SamplingParams(logit_bias=((100, 1.0),))}, "logit_bias names token 100"),
        (
            {"sampling": SamplingParams(stop_token_ids=frozenset({100}))},
            "stop_token_ids names token",
        ),
        ({"sampling": SamplingParams(allowed_token_ids=(-1,))}, "allowed_token_ids names token -1"),
        (
            {"echoes_prompt": True, "sampling": SamplingParams(log_probs=0)},
            "echo_prompt: TensorRT-LLM does not",
        ),
        ({"prompt": [5] * 9000}, "prompt: The sum of prompt length"),
        (
            {
                "guide": Guide("regex", "a"),
                "sampling": SamplingParams(temperature=0, allowed_token_ids=(5,)),
            },
            "cannot combine",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(runtime, more, message):
    running = runtime()
    sink = generate(running, **more)
    assert sink.end == "refused"
    assert message in sink.message
    assert not sent()


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
        (Guide("json_schema", '{"pattern": "a(b)?"}'), "json", '{"pattern": "a(b){0,1}"}'),
        (Guide("regex", "a+"), "regex", "a+"),
        (Guide("ebnf_grammar", "root ::= 'a'"), "grammar", "root ::= 'a'"),
        (Guide("structural_tag", "{}"), "structural_tag", "{}"),
    ],
)
def test_each_kind_of_guide_has_its_field(runtime, guide, field, value):
    running = runtime({"ignores_guides": True})
    generate(running, guide=guide)
    guided = sent()[0][1].guided_decoding
    assert guided.given() == [field]
    assert getattr(guided, field) == value


def test_a_higher_priority_is_a_higher_number_between_0_and_1():
    from trtllm.sampling_params import unit_priority

    numbers = [unit_priority(priority) for priority in (-1000, -1, 0, 1, 2, 1000)]
    assert numbers == sorted(set(numbers))
    assert (numbers[0] > 0, numbers[2], numbers[-1] < 1) == (True, 0.5, True)
