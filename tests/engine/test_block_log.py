"""What an engine reports of its KV cache: to a reader it is the cache, however often it reads."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import block_log
from block_log import BlockKeys, BlockLog
from onnx_cpu.prefix_cache import BLOCK
from tests.fixtures.examples import examples
from tests.fixtures.stepped_scheduler import Bench, prompt


@dataclass
class Reader:
    """A proxy. held: the numbers of blocks that it believes are in the cache."""

    log: BlockLog
    position: int = 0
    held: set[int] = field(default_factory=set)
    restarts: int = 0

    def read(self) -> None:
        self.position, is_new, count, *numbers = self.log.changes_after(self.position)
        if is_new:
            self.restarts += 1
            self.held.clear()
        self.held |= set(numbers[:count])
        self.held -= set(numbers[count:])


def numbers(log: BlockLog, keys) -> set[int]:
    return set(log.of_prompt(list(keys))[1:])


def keys(count: int, salt: str = "") -> list[bytes]:
    return BlockKeys(salt, BLOCK).of(prompt(count * BLOCK))


@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 5), st.booleans()), max_size=12),
    st.sampled_from([100, 300, 1_000]),
)
def test_a_reader_knows_what_the_prefix_cache_holds(artifacts, arrivals, kv_tokens):
    bench = Bench(artifacts / "llama", kv_tokens=kv_tokens)
    reader = Reader(bench.blocks)
    for length, seed, reads in arrivals:
        bench.add(prompt(200, seed)[:length], max_tokens=4)
        bench.run()
        if reads:
            reader.read()
    reader.read()
    held = bench.scheduler._allocator.cache._blocks
    assert reader.held == numbers(bench.blocks, held)
    assert reader.restarts == 1


def test_a_first_response_names_the_blocks_that_the_next_one_finds(artifacts):
    bench = Bench(artifacts / "llama")
    unwatched = bench.add(prompt(100), max_tokens=1)
    bench.run()
    assert unwatched.sink.blocks == [], "no proxy asks for changes"
    reader = Reader(bench.blocks)
    reader.read()
    again = bench.add(prompt(100), max_tokens=1)
    bench.run()
    size, *named = again.sink.blocks
    assert (size, size * len(named)) == (BLOCK, again.sink.cached_tokens) == (16, 96)
    assert set(named) <= reader.held


def test_a_reader_that_is_behind_goes_on_and_one_that_is_far_behind_starts_anew(monkeypatch):
    monkeypatch.setattr(block_log, "CHANGES_AT_ONCE", 3)
    log, all_of_it = BlockLog("demo", BLOCK), keys(8)
    reader = Reader(log)
    reader.read()
    log.stored(all_of_it)
    log.removed(all_of_it[6:])
    for _ in range(3):
        reader.read()
        assert len(reader.held) <= 8
    reader.read()
    assert reader.held == numbers(log, all_of_it[:6])
    assert reader.restarts == 1
    for _ in range(block_log.MOST_CHANGES):
        log.removed(all_of_it[5:6])
        log.stored(all_of_it[5:6])
    reader.read()
    assert (reader.held, reader.restarts) == (numbers(log, all_of_it[:6]), 2)


def test_a_position_is_of_one_process():
    """Also where both have changed as often."""
    before, after = BlockLog("demo", BLOCK), BlockLog("demo", BLOCK)
    reader = Reader(before)
    before.stored(keys(3))
    reader.read()
    reader.log = after
    after.stored(keys(3, "salted"))
    reader.read()
    assert (reader.held, reader.restarts) == (numbers(after, keys(3, "salted")), 2)
    after.restart()
    reader.read()
    assert (reader.held, reader.restarts) == (set(), 3)


def test_models_and_salts_share_no_number():
    logs = [BlockLog(name, BLOCK) for name in ("demo", "other")]
    for log in logs:
        log.changes_after(0)
    found = [numbers(log, keys(3, salt)) for log in logs for salt in ("", "a tenant's")]
    assert len(set.union(*found)) == 12


def test_an_answer_is_bounded_and_takes_milliseconds(monkeypatch):
    log = BlockLog("demo", BLOCK)
    log.stored(number.to_bytes(16, "little") for number in range(100_000))
    began = time.process_time()
    first = log.changes_after(0)
    assert time.process_time() - began < 0.1
    assert len(first) == 3 + block_log.HELD_AT_ONCE
    log.removed(number.to_bytes(16, "little") for number in range(50_000))
    assert len(log.changes_after(first[0])) == 3 + block_log.CHANGES_AT_ONCE
    assert len(log.of_prompt([bytes(16)] * 5_000)) == 1 + block_log.PROMPT_BLOCKS


@pytest.mark.parametrize("size", [16, 32])
def test_the_keys_of_a_growing_sequence_are_those_of_the_whole(size):
    tokens = prompt(200)
    growing = BlockKeys("", size)
    for end in range(0, 200, 7):
        assert growing.of(tokens[:end]) == BlockKeys("", size).of(tokens[:end])
    assert len(growing.of(tokens)) == 200 // size
