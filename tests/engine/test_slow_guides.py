"""A guide that is slow to follow costs its own request, and nobody else."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field

import pytest

from guides.compiler import GuideCompiler
from onnx_cpu.scheduler import Scheduler, SchedulerConfig
from port import GenerationInput, Guide, Job, SamplingParams
from tests.doubles.decoder import TableDecoder
from tests.doubles.sink import KeptTokens
from tests.fixtures.guide_info import VOCAB_SIZE
from tests.fixtures.stack import HANG_S, eventually

ROWS = 4
STEP_CPU_S = 0.05  # of the decode loop; with the guide in it, the last steps took ten times that
HOSTILE = Guide("ebnf_grammar", 'root ::= s\ns ::= s s | "a" | ""')
HOSTILE_TOO = Guide("ebnf_grammar", 'root ::= s\ns ::= s s s | [a-z] | ""')
LATE = Guide("ebnf_grammar", 'root ::= [a-z]{60} s\ns ::= s s s | [a-z] | ""')
NESTED = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/node"}}, {"type": "string"}]}
SOUND = Guide(
    "json_schema",
    json.dumps(
        {
            "$defs": {"node": NESTED},
            "type": "object",
            "properties": {f"p{i}": {"$ref": "#/$defs/node"} for i in range(40)},
            "required": [f"p{i}" for i in range(40)],
        }
    ),
)


@dataclass
class Batch:
    """A scheduler over a table, stepped by hand."""

    compiler: GuideCompiler
    likes: list[int]
    jobs: list[Job] = field(default_factory=list)
    slowest_s: float = 0.0

    def __post_init__(self) -> None:
        decoder = TableDecoder(VOCAB_SIZE, rows=ROWS + 1, likes=self.likes)
        config = SchedulerConfig(
            rows=ROWS, step_tokens=64, kv_bytes=10_000 * decoder.kv.shape.token_bytes
        )
        self.scheduler = Scheduler(
            decoder, self.compiler, config, end_ids=frozenset(), ended=lambda job: None
        )

    def add(self, guide: Guide | None = None, max_tokens: int = 3000) -> KeptTokens:
        sampling = SamplingParams(temperature=0, ignore_eos=True)
        wanted = GenerationInput(
            prompt_ids=[5, 6], max_tokens=max_tokens, sampling=sampling, guide=guide
        )
        self.jobs.append(Job(f"r{len(self.jobs)}", wanted, KeptTokens()))
        self.scheduler.add(self.jobs[-1])
        return self.jobs[-1].sink

    def step(self) -> None:
        began = time.thread_time()
        self.scheduler.step()
        self.slowest_s = max(self.slowest_s, time.thread_time() - began)
        time.sleep(0.001)  # as a model does that runs in other threads

    def steps_until(self, condition) -> int:
        end = time.monotonic() + HANG_S
        for steps in range(10**9):
            if condition():
                return steps
            assert time.monotonic() < end, "it did not happen"
            self.step()
        raise AssertionError


@pytest.fixture(scope="module")
def compiler(vocabulary):
    compiler = GuideCompiler(vocabulary.info_file, cache_bytes=10**8, threads=1)
    compiler.compile(Guide("json", "")).result()
    yield compiler
    compiler.close()


@pytest.fixture
def batch(compiler, vocabulary):
    """Its model likes single letters: more tokens, and deeper ambiguity."""
    letters = [vocabulary.table.index(bytes([letter])) for letter in b"abcdefgh"]
    made = Batch(compiler, letters)
    yield made
    made.scheduler.end_all()


@pytest.mark.parametrize("guide", [HOSTILE, HOSTILE_TOO, LATE], ids=["two", "three", "late"])
def test_a_guide_that_grows_slow_is_ended_and_other_streams_get_a_token_at_every_step(batch, guide):
    stream = batch.add()
    batch.steps_until(lambda: stream.ids)
    hostile = batch.add(guide)
    before = len(stream.ids)
    steps = batch.steps_until(lambda: hostile.end)
    assert (hostile.end, hostile.code) == ("refused", "guide_too_slow")
    assert "ambiguous" in hostile.message
    assert len(hostile.ids) > 20
    assert len(stream.ids) == min(before + steps, 3000), "it may have ended before"
    assert batch.slowest_s < STEP_CPU_S
    again = batch.add(guide)
    assert (again.end, again.code, again.ids) == ("refused", "guide_too_slow", [])


def test_a_row_that_waits_for_its_guide_gives_the_tokens_that_it_gives_alone(batch, compiler):
    alone = batch.add(SOUND, max_tokens=400)
    batch.steps_until(lambda: alone.end)
    hostile = [batch.add(guide) for guide in (HOSTILE_TOO, LATE)]
    beside = batch.add(SOUND, max_tokens=400)
    batch.steps_until(lambda: beside.end and all(one.end for one in hostile))
    assert beside.ids == alone.ids
    assert {one.end for one in hostile} == {"refused"}


def test_a_slow_guide_that_is_cancelled_frees_its_row(batch):
    hostile = batch.add(HOSTILE_TOO)
    batch.steps_until(lambda: len(hostile.ids) > 20)
    batch.jobs[-1].is_cancelled = True
    batch.step()
    assert hostile.end == "cancelled"
    assert not batch.scheduler.has_work


def test_the_threads_of_guides_end(compiler, vocabulary):
    others = set(threading.enumerate())

    def workers() -> list[threading.Thread]:
        new = set(threading.enumerate()) - others
        return [one for one in new if one.name == "guide-worker"]

    batch = Batch(compiler, [])
    sound = batch.add(SOUND, max_tokens=5)
    batch.steps_until(lambda: sound.end)
    assert workers()
    batch.scheduler.end_all()
    eventually(lambda: not workers(), 10, "they have ended")
