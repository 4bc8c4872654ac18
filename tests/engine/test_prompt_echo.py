"""A prompt told again: its tokens and log-probabilities, whatever the scheduler does meanwhile."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from onnx_cpu.decoder import OnnxDecoder
from onnx_cpu.prefill import MOST_SCORED_TOKENS
from port import SamplingParams, Token
from tests.fixtures.stepped_scheduler import CONTEXT, GREEDY, Bench, decoder, prompt

LOGGED = replace(GREEDY, log_probs=2)


def expected(folder, ids: list[int]) -> list[float]:
    """By one prefill and a plain log-softmax; without the first token's."""
    logits = np.concatenate(
        [
            decoder(folder).prefill(0, ids[at : at + 64], at, 0).astype(np.float64)
            for at in range(0, len(ids), 64)
        ]
    )
    best = logits.max(axis=1, keepdims=True)
    all_of_them = logits - best - np.log(np.exp(logits - best).sum(axis=1, keepdims=True))
    return all_of_them[np.arange(len(ids) - 1), ids[1:]].tolist()


def scores(job) -> list[float]:
    assert [token.id for token in job.sink.echoed] == job.input.prompt_ids
    assert math.isnan(job.sink.echoed[0].log_probs.sampled)
    return [token.log_probs.sampled for token in job.sink.echoed[1:]]


@pytest.fixture
def folder(artifacts):
    return artifacts / "llama"


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 200])
def test_every_chunk_is_scored_and_the_answer_goes_on(folder, length):
    bench = Bench(folder)
    ids = prompt(length)
    job = bench.add(ids, sampling=LOGGED, echoes_prompt=True)
    bench.run()
    assert scores(job) == pytest.approx(expected(folder, ids), abs=1e-3)
    assert job.sink.ids == bench.right(job)
    for token in job.sink.echoed[1:]:
        best, second = token.log_probs.top
        assert best[1] >= second[1]
        assert best[1] >= token.log_probs.sampled - 1e-6


@pytest.mark.parametrize(("echoes", "longest"), [(True, MOST_SCORED_TOKENS), (False, 400)])
def test_few_tokens_at_once_are_scored(folder, monkeypatch, echoes, longest):
    """The logits of each of them are held, of others the last one's alone."""
    bench, held = Bench(folder, step_tokens=512), []
    prefill = OnnxDecoder.prefill

    def watched(*arguments):
        logits = prefill(*arguments)
        held.append((len(arguments[2]), len(logits)))
        return logits

    monkeypatch.setattr(OnnxDecoder, "prefill", watched)
    job = bench.add(prompt(400), sampling=LOGGED, echoes_prompt=echoes)
    bench.run()
    assert job.sink.ids == bench.right(job)
    assert max(tokens for tokens, _ in held) == longest
    assert max(logits for _, logits in held) == (longest if echoes else 1)


def test_cached_prompts_are_computed_again_for_their_scores(folder):
    bench = Bench(folder)
    ids = prompt(100)
    bench.add(ids)
    bench.run()
    scored = bench.add(ids, sampling=LOGGED, echoes_prompt=True)
    plain = bench.add(ids, echoes_prompt=True)
    bench.run()
    assert scored.sink.cached_tokens == 0
    assert scores(scored) == pytest.approx(expected(folder, ids), abs=1e-3)
    assert plain.sink.cached_tokens > 0, "without scores nothing is computed twice"
    assert plain.sink.echoed == [Token(token) for token in ids]


def test_a_prompt_alone_ends_without_a_new_token(folder):
    bench = Bench(folder)
    ids = prompt(70)
    job = bench.add(ids, max_tokens=0, sampling=LOGGED, echoes_prompt=True)
    full = bench.add(prompt(CONTEXT, 1), max_tokens=0, sampling=LOGGED, echoes_prompt=True)
    bench.run()
    assert (job.sink.end, job.sink.ids) == ("length", [])
    assert scores(job) == pytest.approx(expected(folder, ids), abs=1e-3)
    assert (full.sink.end, len(full.sink.echoed)) == ("length", CONTEXT)
    assert bench.ended == [job, full]


def test_a_sequence_that_gives_way_is_scored_once(folder):
    bench = Bench(folder, rows=1, step_tokens=32, stall_s=1e-6)
    ids = prompt(150)
    job = bench.add(ids, max_tokens=5, sampling=LOGGED, echoes_prompt=True)
    bench.steps_until(lambda: bench.scheduler.stats.prefill_tokens)
    bench.add(prompt(20, 1), max_tokens=3, priority=1)
    bench.add(ids, max_tokens=3, priority=1)  # its blocks come into the cache meanwhile
    bench.run()
    assert scores(job) == pytest.approx(expected(folder, ids), abs=1e-3)
    assert job.sink.ids == bench.right(job)


def test_scores_are_of_the_untouched_logits(folder):
    bench = Bench(folder)
    ids = prompt(30)
    changed = SamplingParams(temperature=0, log_probs=0, logit_bias=((5, 50.0),), seed=1)
    job = bench.add(ids, 3, changed, echoes_prompt=True)
    bench.run()
    assert scores(job) == pytest.approx(expected(folder, ids), abs=1e-3)
