"""TensorRT-LLM's KV cache events -> BlockLog. event_buffer_max_size switches them on.

An event names blocks by TensorRT-LLM's own hashes, which differ between versions. One of stored
blocks has their tokens, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from block_log import BlockKey, BlockLog, next_key, root_key

POLL_S = 0.25
BLOCKS_AT_ONCE = 32  # so that streams do not wait: each token of a block is a dictionary
# Nothing has come since. AssertionError: no request has been submitted yet.
NOTHING_NEW = (asyncio.QueueEmpty, asyncio.TimeoutError, IndexError, AssertionError)

logger = logging.getLogger(__name__)


class KvEvents:
    """log: it gets full blocks of text of requests without a salt; events of other blocks are
    skipped. TensorRT-LLM 1.2's do not name a salt, and none names a LoRA adapter, so such blocks
    look like others: routing may then expect a prefix that is another adapter's or salt's.
    """

    def __init__(self, log: BlockLog) -> None:
        self._log = log
        self._root = root_key("")
        self._keys: dict[int, BlockKey] = {}  # by TensorRT-LLM's hash
        self._next_id: int | None = None
        self._window = 0

    def push(self, event: Mapping[str, Any]) -> Iterator[None]:
        """Yields where other work may be done in between."""
        data, number = event["data"], event["event_id"]
        if self._next_id not in (None, number):
            logger.warning("KV cache events are missing: raise event_buffer_max_size")
            self._keys.clear()
            self._log.restart()
        self._next_id = number + 1
        window = event.get("window_size", 0)  # layers of a sliding window have events of their own
        if window < self._window:
            return
        self._window = window
        if data["type"] == "stored":
            yield from self._store(data["parent_hash"], data["blocks"])
        elif data["type"] == "removed":
            gone = (self._keys.pop(block, None) for block in data["block_hashes"])
            self._log.removed([key for key in gone if key is not None])

    def _store(self, parent: int | None, blocks: Sequence[Mapping[str, Any]]) -> Iterator[None]:
        key = self._root if parent is None else self._keys.get(parent)
        for start in range(0, len(blocks), BLOCKS_AT_ONCE):
            stored = []
            for block in blocks[start : start + BLOCKS_AT_ONCE]:
                tokens = [token["token_id"] for token in block["tokens"]]
                is_plain = not block.get("cache_salt") and not block.get("mm_keys")
                if key is None or len(tokens) != self._log.size or not is_plain:
                    key = None
                    break
                key = self._keys[block["block_hash"]] = next_key(key, tokens)
                stored.append(key)
            self._log.stored(stored)
            yield


async def collect(llm: Any, log: BlockLog) -> None:
    """Reads events four times a second, until it is cancelled. llm: a tensorrt_llm.LLM."""
    found = KvEvents(log)
    try:
        while True:
            await asyncio.sleep(POLL_S)
            try:
                events = llm.get_kv_cache_events_async(timeout=0)
                if hasattr(events, "mark_undone"):  # else it stays exhausted until the next request
                    events.mark_undone()
                async for event in events:
                    for _ in found.push(event):
                        await asyncio.sleep(0)
            except NOTHING_NEW:
                continue
    except Exception:
        logger.exception("cannot read TensorRT-LLM's KV cache events: proxies guess what is cached")
        log.restart()
