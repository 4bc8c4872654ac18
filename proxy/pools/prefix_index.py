"""Which endpoints probably have the beginning of a prompt in their prefix cache.

Approximate: it knows what this process sent, not what the engines kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

# Sizes of the blocks in characters: small ones first, so that short chats match, and larger ones
# later, so that a prompt of any length costs at most 160 hashes of 127,000 characters together.
# What stands after them does not count: prompts that are alike so far are one conversation.
BLOCK_SIZES = tuple(size for size in (128, 256, 512, 1024, 2048) for _ in range(32))
CHARACTERS_AN_ID = 4
ENTRIES_AN_ENDPOINT = 4096  # at 128 tokens each half a million, what one GPU's KV cache holds
MOST_LEVELS = 4


def _ends(scale: int) -> tuple[int, ...]:
    ends, end = [], 0
    for size in BLOCK_SIZES:
        end += size // scale
        ends.append(end)
    return tuple(ends)


CHARACTER_ENDS, ID_ENDS = _ends(1), _ends(CHARACTERS_AN_ID)


@dataclass(frozen=True, slots=True)
class PromptBlocks:
    """The complete blocks of a prompt. keys: one a block; each covers all blocks before it.

    ends: where each block ends, in characters of text or in ids. length: of the prompt, likewise.
    """

    keys: tuple[int, ...]
    ends: tuple[int, ...]
    length: int

    def share(self, blocks: int) -> float:
        """The share of the prompt that its first `blocks` blocks are, 0 to 1."""
        return self.ends[blocks - 1] / self.length if blocks else 0.0


def prompt_blocks(
    prompt: str | Sequence[int],
    *,
    model: str,
    cache_salt: str | None = None,
    adapter: str | None = None,
) -> PromptBlocks:
    """Blocks of rendered text, or of token ids. Equal only within one model, salt and adapter.

    Uses Python's own hash, which has a secret key for text and takes no encoding. A collision
    sends a request to an endpoint that lacks the prefix, and nothing worse.
    """
    ends = CHARACTER_ENDS if isinstance(prompt, str) else ID_ENDS
    key = hash((model, cache_salt, adapter))
    keys, start, length = [], 0, len(prompt)
    for end in ends:
        if end > length:
            break
        block = prompt[start:end]
        key = hash((key, block if isinstance(block, (str, tuple)) else tuple(block)))
        keys.append(key)
        start = end
    return PromptBlocks(tuple(keys), ends, length)


class PrefixIndex:
    """Of the endpoints of one pool. entries: blocks that are remembered of each endpoint."""

    def __init__(self, entries: int = ENTRIES_AN_ENDPOINT) -> None:
        self._most = max(entries, len(BLOCK_SIZES))
        self._holders: dict[int, int] = {}  # block: bits of the endpoints that have it
        self._recent: dict[int, OrderedDict[int, None]] = {}  # bit: its blocks, oldest first

    def add_endpoint(self) -> int:
        """Returns the endpoint's bit, a power of two that is free again after `remove_endpoint`."""
        bit = 1
        while bit in self._recent:
            bit <<= 1
        self._recent[bit] = OrderedDict()
        return bit

    def remove_endpoint(self, bit: int) -> None:
        self.forget(bit)
        del self._recent[bit]

    def forget(self, bit: int) -> None:
        """The endpoint has lost its cache, for example because it was restarted."""
        for key in self._recent[bit]:
            self._drop(key, bit)
        self._recent[bit].clear()

    def record(self, bit: int, blocks: PromptBlocks) -> None:
        """The prompt was sent to the endpoint. A prompt costs at most 160 entries."""
        recent, holders = self._recent[bit], self._holders
        for key in reversed(blocks.keys):  # the beginning is the newest: the oldest ends go first
            if key in recent:
                recent.move_to_end(key)
            else:
                recent[key] = None
                holders[key] = holders.get(key, 0) | bit
        while len(recent) > self._most:
            self._drop(recent.popitem(last=False)[0], bit)

    def match(self, blocks: PromptBlocks, among: int) -> list[tuple[int, int]]:
        """The longest matches as (number of blocks, bits of all endpoints with at least these).

        among: bits of the endpoints that count. Longest first, at most MOST_LEVELS; the last one
        is shorter than all others, or common to all of `among`.
        """
        levels: list[tuple[int, int]] = []
        bits, keys = 0, blocks.keys
        depth = len(keys)
        while depth and bits != among and len(levels) < MOST_LEVELS:
            depth = self._last_with_more(keys, depth, among, bits)
            if depth:
                bits = self._holders[keys[depth - 1]] & among
                levels.append((depth, bits))
        return levels

    def _last_with_more(self, keys: tuple[int, ...], depth: int, among: int, than: int) -> int:
        """How many blocks at most have holders that are not in `than`; by bisection, because the
        holders of a block have all blocks before it.
        """
        holders, low = self._holders, 0
        while low < depth:
            middle = (low + depth + 1) // 2
            if holders.get(keys[middle - 1], 0) & among & ~than:
                low = middle
            else:
                depth = middle - 1
        return low

    def _drop(self, key: int, bit: int) -> None:
        if bits := self._holders[key] & ~bit:
            self._holders[key] = bits
        else:
            del self._holders[key]
