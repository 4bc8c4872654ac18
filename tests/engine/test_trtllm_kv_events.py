"""TensorRT-LLM's KV cache events, in upstream's form, and what becomes of them."""

from __future__ import annotations

import json

import pytest

from block_log import BlockKeys, BlockLog
from build_engines.upstream import signatures
from tests.engine.test_block_log import Reader
from tests.fixtures.stack import eventually
from tests.fixtures.trtllm_runtime import generate
from trtllm.kv_events import KvEvents

SIZE = 4
TOKENS = list(range(100, 124))
KEYS = BlockKeys("", SIZE).of(TOKENS)
ON = json.dumps({"kv_cache_config": {"event_buffer_max_size": 1024}})


def stored(parent: int | None, *blocks: tuple[int, list[int]], **more: object) -> dict:
    def token(token_id: int) -> dict:
        return {"type": "unique_token", "token_id": token_id, "token_extra_id": 0}

    rows = [
        {
            "type": "stored_block",
            "block_hash": number,
            "tokens": [token(one) for one in tokens],
            "cache_level": 0,
            "priority": 35,
            **more,
        }
        for number, tokens in blocks
    ]
    return {"type": "stored", "parent_hash": parent, "blocks": rows}


def removed(*numbers: int) -> dict:
    return {"type": "removed", "block_hashes": list(numbers)}


def block(number: int) -> list[int]:
    return TOKENS[number * SIZE : (number + 1) * SIZE]


class Events:
    """Numbers events as upstream does. held: the keys that a reader finds, as numbers."""

    def __init__(self) -> None:
        self.log = BlockLog("demo", SIZE)
        self.reader = Reader(self.log)
        self._found = KvEvents(self.log)
        self._next = 0

    def push(self, *events: dict, window: int = 4096, lost: int = 0) -> None:
        self._next += lost
        for data in events:
            for _ in self._found.push(
                {"event_id": self._next, "data": data, "window_size": window}
            ):
                pass
            self._next += 1

    def hold(self, count: int) -> bool:
        self.reader.read()
        return self.reader.held == set(self.log.of_prompt(KEYS[:count])[1:])


def test_stored_blocks_follow_their_parents_and_removed_ones_are_gone():
    events = Events()
    events.push({"type": "created", "num_blocks_per_cache_level": [8, 0]})
    events.push(stored(None, (1, block(0)), (2, block(1))), stored(2, (3, block(2))))
    assert events.hold(3)
    events.push({"type": "updated", "block_hash": 3, "cache_level": None, "priority": None})
    events.push(removed(3, 99))
    assert events.hold(2)
    events.push(stored(2, *((4 + n, block(2 + n)) for n in range(4))))
    assert events.hold(6)


@pytest.mark.parametrize(
    "event",
    [
        stored(2, (3, block(2)[:-1])),
        stored(99, (3, block(2))),
        stored(2, (3, block(2)), cache_salt="a tenant's"),
        stored(2, (3, block(2)), mm_keys=[{"type": "mm_key", "hash": "00", "start_offset": 0}]),
    ],
    ids=["part of a block", "an unknown parent", "another salt", "an image"],
)
def test_other_blocks_and_those_after_them_are_skipped(event):
    events = Events()
    events.push(stored(None, (1, block(0)), (2, block(1))), event, stored(3, (4, block(3))))
    assert events.hold(2)
    events.push(removed(3, 4))
    assert events.hold(2)


def test_a_sliding_windows_blocks_are_not_those_of_the_whole_context():
    events = Events()
    events.push({"type": "created", "num_blocks_per_cache_level": [8, 0]})
    events.push({"type": "created", "num_blocks_per_cache_level": [8, 0]}, window=64)
    events.push(stored(None, (1, block(0))))
    events.push(stored(None, (7, block(0)), (8, block(1))), removed(7), window=64)
    assert events.hold(1)


def test_after_a_lost_event_nothing_is_known(caplog):
    events = Events()
    events.push(stored(None, (1, block(0)), (2, block(1))))
    assert events.hold(2)
    events.push(stored(2, (3, block(2))), lost=1)
    assert events.hold(0)
    assert "event_buffer_max_size" in caplog.text
    events.push(stored(None, (1, block(0))))
    assert events.hold(1)


def test_a_runtime_reports_what_its_executor_keeps(runtime):
    running = runtime({"kv_blocks": 4}, llm_args=ON)
    reader, prompts = Reader(running.blocks), [[n] * 70 for n in (5, 6, 7)]
    reader.read()
    for prompt in prompts:
        sink = generate(running, prompt=prompt)
    size, *named = sink.blocks
    assert (size, len(named)) == (32, 2)

    def knows() -> bool:
        reader.read()
        return len(reader.held) == 4 and set(named) <= reader.held

    eventually(knows, 10, "the newest prompt's blocks are known")
    assert generate(running, prompt=prompts[2]).cached_tokens == size * len(named)
    salted = generate(running, prompt=prompts[0], cache_salt="a tenant's")
    assert salted.blocks == [], "its blocks cannot be found among the events"


def test_a_refused_first_request_does_not_end_the_reports(runtime):
    """Upstream has no events before a request, and says so by an AssertionError."""
    running = runtime(llm_args=ON)
    refused = generate(running, prompt=[1] * 100_000)
    assert refused.end == "refused"
    generate(running, prompt=[5] * 40)
    reader = Reader(running.blocks)

    def knows() -> bool:
        reader.read()
        return len(reader.held) == 1

    eventually(knows, 10, "its block is known")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"kv_cache_config": {"enable_block_reuse": True}},
        {**json.loads(ON), "enable_attention_dp": True},
    ],
    ids=["nothing said", "off", "a cache for each rank"],
)
def test_without_events_of_one_cache_it_reports_nothing(runtime, arguments):
    assert runtime(llm_args=json.dumps(arguments)).blocks is None


@pytest.mark.parametrize("record", signatures.VERSIONS, ids=lambda record: record.stem)
def test_upstream_has_what_is_used(record):
    references = signatures.FACTS.with_name("references.json")
    methods = json.loads(references.read_text())["references/llm"]["methods"]
    assert "timeout" in methods["get_kv_cache_events_async"]["parameters"]
    options = signatures.RecordedClasses.read(record).fields("KvCacheConfig")
    assert options["event_buffer_max_size"]["default"] == 0
    assert options["tokens_per_block"]["default"] == 32
