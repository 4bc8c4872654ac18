"""Which endpoints probably have the beginning of a prompt in their prefix cache.

Approximate: it knows what this process sent, not what the engines kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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

    @property
    def newest_last(self) -> Iterator[int]:
        """For `HolderIndex.record`: the ends of a prompt are forgotten before its beginning."""
        return reversed(self.keys)

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


Key = TypeVar("Key", bound=Hashable)


class HolderIndex(Generic[Key]):
    """Which endpoints of a pool probably have something: each is a bit, a power of two.

    most: keys that are remembered of each endpoint; the least recently used one goes first.
    holders: of each key, the bits of the endpoints that have it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.holders: dict[Key, int] = {}
        self._recent: dict[int, OrderedDict[Key, None]] = {}  # bit: its keys, oldest first

    def record(self, bit: int, keys: Iterable[Key]) -> None:
        """A request for these was sent to the endpoint, which has them then; the newest last."""
        recent, holders = self._recent.setdefault(bit, OrderedDict()), self.holders
        for key in keys:
            if key in recent:
                recent.move_to_end(key)
            else:
                recent[key] = None
                holders[key] = holders.get(key, 0) | bit
        while len(recent) > self._most:
            self._drop(recent.popitem(last=False)[0], bit)

    def forget(self, bit: int) -> None:
        """The endpoint has nothing any more, for example because it was restarted."""
        if recent := self._recent.get(bit):
            for key in recent:
                self._drop(key, bit)
            recent.clear()

    def _drop(self, key: Key, bit: int) -> None:
        if bits := self.holders[key] & ~bit:
            self.holders[key] = bits
        else:
            del self.holders[key]


class PrefixIndex(HolderIndex[int]):
    """Of blocks of prompts. entries: blocks that are remembered of each endpoint."""

    def __init__(self, entries: int = ENTRIES_AN_ENDPOINT) -> None:
        super().__init__(max(entries, len(BLOCK_SIZES)))

    def add_endpoint(self) -> int:
        """Returns the endpoint's bit, which is free again after `remove_endpoint`."""
        bit = 1
        while bit in self._recent:
            bit <<= 1
        self._recent[bit] = OrderedDict()
        return bit

    def remove_endpoint(self, bit: int) -> None:
        self.forget(bit)
        del self._recent[bit]

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
                bits = self.holders[keys[depth - 1]] & among
                levels.append((depth, bits))
        return levels

    def _last_with_more(self, keys: tuple[int, ...], depth: int, among: int, than: int) -> int:
        """How many blocks at most have holders that are not in `than`; by bisection, because the
        holders of a block have all blocks before it.
        """
        holders, low = self.holders, 0
        while low < depth:
            middle = (low + depth + 1) // 2
            if holders.get(keys[middle - 1], 0) & among & ~than:
                low = middle
            else:
                depth = middle - 1
        return low
