"""Which endpoints probably have the beginning of a prompt in their prefix cache.

A guess by what this process sent, until an endpoint reports the blocks that its engines hold. These
are blocks of tokens, and a prompt is text here; so engines name the blocks of a prompt with its
first token, and the index remembers which of them each block of text ends with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from proxy.domain.output import TokenDelta

# Sizes of the blocks in characters: small ones first, so that short chats match, and larger ones
# later, so that a prompt of any length costs at most 160 hashes of 127,000 characters together.
# What stands after them does not count: prompts that are alike so far are one conversation.
BLOCK_SIZES = tuple(size for size in (128, 256, 512, 1024, 2048) for _ in range(32))
CHARACTERS_AN_ID = 4
ENTRIES_AN_ENDPOINT = 4096  # at 128 tokens each half a million, what one GPU's KV cache holds
REPORTED_AN_ENDPOINT = 16_384  # of an engine's blocks; at 32 tokens each half a million, too
NAMED_BLOCKS = 65_536  # of text, with the engine's blocks that they end with
NUMBER = 8  # bytes
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

    def drop(self, bit: int, keys: Iterable[Key]) -> None:
        """The endpoint does not have these any more, if it had them."""
        if recent := self._recent.get(bit):
            for key in keys:
                if key in recent:
                    del recent[key]
                    self._drop(key, bit)

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


def _number(numbers: bytes, at: int) -> int:
    return int.from_bytes(numbers[at * NUMBER : (at + 1) * NUMBER], "little")


def _common_numbers(one: bytes, other: bytes) -> int:
    """How many equal numbers both begin with; by bisection, because comparing bytes is fast."""
    least = min(len(one), len(other)) // NUMBER
    return bisect_left(
        range(1, least + 1),
        True,
        key=lambda count: one[: count * NUMBER] != other[: count * NUMBER],
    )


class PrefixIndex(HolderIndex[int]):
    """Of blocks of prompts. entries: blocks that are remembered of each endpoint."""

    def __init__(self, entries: int = ENTRIES_AN_ENDPOINT) -> None:
        super().__init__(max(entries, len(BLOCK_SIZES)))
        self._reported = HolderIndex[int](REPORTED_AN_ENDPOINT)  # the engines' blocks
        # key of a block of text: how many of the engine's blocks end with it or before, and the
        # blocks of a prompt with that beginning
        self._named: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        # bit of an endpoint that reports: guesses that its next report, or the one after it, covers
        self._guesses: dict[int, tuple[list[int], list[int]]] = {}

    def add_endpoint(self) -> int:
        """Returns the endpoint's bit, which is free again after `remove_endpoint`."""
        bit = 1
        while bit in self._recent:
            bit <<= 1
        self._recent[bit] = OrderedDict()
        return bit

    def remove_endpoint(self, bit: int) -> None:
        self.forget(bit)
        self.forget_reports(bit)
        del self._recent[bit]

    def report(self, bit: int, stored: Sequence[int], removed: Iterable[int]) -> None:
        """The endpoint's engines have stored blocks, each after the one before it, or removed
        them.
        """
        self._reported.drop(bit, removed)
        self._reported.record(bit, reversed(stored))

    def settle(self, bit: int) -> None:
        """Drops guesses on prompts that began before the last report, which covers them. Not those
        since: TensorRT-LLM reports a block up to a second after its first token.
        """
        covered, since = self._guesses.get(bit, ([], []))
        self.drop(bit, covered)
        self._guesses[bit] = since, []

    def forget_reports(self, bit: int) -> None:
        """The endpoint does not report any more, or begins anew."""
        self._reported.forget(bit)
        self.drop(bit, chain(*self._guesses.pop(bit, ())))

    def withdraw(self, bit: int, blocks: PromptBlocks) -> None:
        """The prompt ended there before its first token."""
        if (guesses := self._guesses.get(bit)) is not None:
            guesses[1].extend(blocks.keys)

    def name(self, bit: int, blocks: PromptBlocks, first: TokenDelta) -> None:
        """A prompt's first token came with the engine's blocks of it.

        How many of them a beginning has is exact for ids, and an estimate for text. If that is too
        many, the next prompt with that beginning shows it: both must have them.
        """
        named, prompt_tokens = first.prompt_blocks, first.prompt_tokens or 0
        size, most = _number(named, 0), len(named) // NUMBER - 1
        if (guesses := self._guesses.get(bit)) is None or not size:
            return
        guesses[1].extend(blocks.keys)
        compared, common, found = b"", 0, list[int]()
        for key, end in reversed(tuple(zip(blocks.keys, blocks.ends, strict=False))):
            count, before = self._named.pop(key, (most, named))
            if before is named:
                count = min(most, end * prompt_tokens // (blocks.length * size))
            else:
                if before is not compared:
                    compared, common = before, _common_numbers(before, named)
                count = min(count, common - 1)
            if count > 0:
                self._named[key] = count, named
                if count * size <= (first.cached_tokens or 0):
                    found.append(_number(named, count))
        self._reported.record(bit, found)  # makes them the newest ones
        while len(self._named) > NAMED_BLOCKS:
            self._named.popitem(last=False)

    def cached_tokens(self, blocks: PromptBlocks, depth: int, prompt_tokens: int) -> float:
        """How many tokens of a prompt its first `depth` blocks are."""
        if (found := self._named.get(blocks.keys[depth - 1])) is None:
            return prompt_tokens * blocks.share(depth)
        count, named = found
        return count * _number(named, 0)

    def _holders(self, key: int) -> int:
        bits = self.holders.get(key, 0)
        if (found := self._named.get(key)) is not None:
            count, named = found
            bits |= self._reported.holders.get(_number(named, count), 0)
        return bits

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
                bits = self._holders(keys[depth - 1]) & among
                levels.append((depth, bits))
        return levels

    def _last_with_more(self, keys: tuple[int, ...], depth: int, among: int, than: int) -> int:
        """How many blocks at most have holders that are not in `than`; by bisection, because the
        holders of a block have all blocks before it.
        """
        low = 0
        while low < depth:
            middle = (low + depth + 1) // 2
            if self._holders(keys[middle - 1]) & among & ~than:
                low = middle
            else:
                depth = middle - 1
        return low
