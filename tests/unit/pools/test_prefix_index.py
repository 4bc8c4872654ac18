"""Which endpoints have the beginning of a prompt."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.domain.output import TokenDelta
from proxy.pools.pool import BLOCKS_AT_ONCE
from proxy.pools.prefix_index import (
    BLOCK_SIZES,
    CHARACTER_ENDS,
    ID_ENDS,
    MOST_LEVELS,
    NAMED_BLOCKS,
    REPORTED_AN_ENDPOINT,
    PrefixIndex,
    PromptBlocks,
    prompt_blocks,
)
from tests.fixtures.stack import SLOWEST

ALL = (1 << 100) - 1
SIZE = 16  # tokens of an engine's block


def blocks(prompt: str | tuple[int, ...], **scope: str) -> PromptBlocks:
    return prompt_blocks(prompt, model="m", **scope)


def text(length: int, letter: str = "a") -> str:
    return "".join(f"{letter}{number:07d}" for number in range(-(-length // 8)))[:length]


@pytest.mark.parametrize("scope", [{"cache_salt": "t"}, {"adapter": "t"}, {"model": "t"}])
def test_nothing_is_shared_between_salts_adapters_and_models(scope):
    own = prompt_blocks(text(5_000), **{"model": "m", **scope})
    assert not set(own.keys) & set(blocks(text(5_000)).keys)
    swapped = prompt_blocks(text(5_000), model="m", cache_salt=None, adapter="s")
    assert not set(swapped.keys) & set(blocks(text(5_000), cache_salt="s").keys)


def test_a_prompt_of_any_length_has_a_bounded_number_of_blocks():
    assert len(blocks("x" * 2_000_000).keys) == len(BLOCK_SIZES) == 160
    assert len(blocks(tuple(range(500_000))).keys) == 160
    assert (CHARACTER_ENDS[-1], ID_ENDS[-1]) == (126_976, 31_744)
    assert blocks("\ud800" * 200).keys, "a lone surrogate is text, too"


def test_an_endpoint_that_is_gone_or_restarted_has_nothing():
    index = PrefixIndex()
    one, two = index.add_endpoint(), index.add_endpoint()
    prompt = blocks(text(2_000))
    index.record(one, prompt.newest_last)
    index.record(two, prompt.newest_last)
    index.forget(one)
    assert index.match(prompt, ALL) == [(len(prompt.keys), two)]
    index.remove_endpoint(two)
    assert index.match(prompt, ALL) == []
    assert index.add_endpoint() == two, "bits are used again, so masks stay short"


class SlowIndex:
    """The same by comparing texts: each endpoint's blocks as prefixes, newest last."""

    def __init__(self, entries: int) -> None:
        self.entries, self.prefixes = entries, [[], [], []]

    def record(self, endpoint: int, prompt: str) -> None:
        kept = self.prefixes[endpoint]
        for end in sorted((end for end in CHARACTER_ENDS if end <= len(prompt)), reverse=True):
            if prompt[:end] in kept:
                kept.remove(prompt[:end])
            kept.append(prompt[:end])
        del kept[: max(0, len(kept) - self.entries)]

    def matched(self, endpoint: int, prompt: str) -> int:
        kept = self.prefixes[endpoint]
        return sum(end <= len(prompt) and prompt[:end] in kept for end in CHARACTER_ENDS)


PROMPTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(
    lambda parts: "".join(text(4_000, part) for part in parts)
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), PROMPTS), max_size=20), PROMPTS)
def test_it_agrees_with_a_comparison_of_texts(recorded, wanted):
    index, slow = PrefixIndex(entries=160), SlowIndex(160)
    bits = [index.add_endpoint() for _ in range(3)]
    for endpoint, prompt in recorded:
        index.record(bits[endpoint], blocks(prompt).newest_last)
        slow.record(endpoint, prompt)
    levels = index.match(blocks(wanted), ALL)
    assert len(levels) <= MOST_LEVELS
    for endpoint, bit in enumerate(bits):
        found = next((depth for depth, holders in levels if holders & bit), 0)
        assert found == slow.matched(endpoint, wanted)


def first_response(prompt: tuple[int, ...], cached_tokens: int = 0) -> TokenDelta:
    """The first delta of an engine that had so much of the prompt in its cache."""
    numbers = engine_blocks(prompt)
    return TokenDelta(
        (b"a",),
        prompt_tokens=len(prompt),
        cached_tokens=cached_tokens,
        prompt_blocks=struct.pack(f"<{1 + len(numbers)}Q", SIZE, *numbers),
    )


def engine_blocks(prompt: tuple[int, ...]) -> list[int]:
    """As an engine numbers them; it may reuse those before the last token."""
    ends = range(SIZE, len(prompt), SIZE)
    return [hash(prompt[:end]) & (2**64 - 1) for end in ends]


class Reporting:
    """An index of one endpoint that reports, and of `other`, which does not."""

    def __init__(self) -> None:
        self.index = PrefixIndex()
        self.bit, self.other = self.index.add_endpoint(), self.index.add_endpoint()
        self.index.settle(self.bit)

    def compute(self, prompt: tuple[int, ...]) -> None:
        """The endpoint is sent a prompt, whose first token comes and whose blocks it stores."""
        sent = blocks(prompt)
        self.index.record(self.bit, sent.newest_last)
        self.index.name(self.bit, sent, first_response(prompt))
        self.index.report(self.bit, engine_blocks(prompt), ())
        self.pass_time()

    def pass_time(self) -> None:
        for _ in range(2):
            self.index.settle(self.bit)

    def expected(self, prompt: tuple[int, ...]) -> float:
        wanted = blocks(prompt)
        levels = self.index.match(wanted, self.bit)
        return self.index.cached_tokens(wanted, levels[0][0], len(prompt)) if levels else 0


def ids(length: int, start: int = 0) -> tuple[int, ...]:
    return tuple(range(start, start + length))


def test_reports_replace_the_guess():
    stand, prompt = Reporting(), ids(320)
    stand.compute(prompt)
    assert stand.expected(prompt) == 304, "less the block of the last token, which is computed"
    assert stand.expected((*prompt[:100], *ids(220, 5_000))) == 96
    stand.index.report(stand.bit, (), engine_blocks(prompt)[5:])
    assert stand.expected(prompt) == 64, "blocks of text end after 64 and 96 tokens"
    stand.index.report(stand.bit, (), engine_blocks(prompt))
    assert stand.expected(prompt) == 0
    stand.index.report(stand.bit, engine_blocks(prompt), ())
    assert stand.expected(prompt) == 304, "another proxy's request has stored it again"


def test_until_it_is_reported_a_prompt_is_expected_where_it_was_sent():
    stand, prompt = Reporting(), ids(320)
    sent = blocks(prompt)
    stand.index.record(stand.bit, sent.newest_last)
    assert stand.expected(prompt) == 320
    stand.index.name(stand.bit, sent, first_response(prompt))
    stand.index.settle(stand.bit)
    assert stand.expected(prompt) > 0, "its blocks may not have been reported"
    stand.index.settle(stand.bit)
    assert stand.expected(prompt) == 0, "it was never stored"


def test_what_ends_before_its_first_token_is_not_expected():
    stand, prompt = Reporting(), ids(320)
    stand.index.record(stand.bit, blocks(prompt).newest_last)
    stand.index.withdraw(stand.bit, blocks(prompt))
    stand.pass_time()
    assert stand.expected(prompt) == 0


def test_an_endpoint_without_reports_is_guessed_as_before():
    stand, prompt = Reporting(), ids(320)
    sent = blocks(prompt)
    stand.compute(prompt)
    stand.index.record(stand.other, sent.newest_last)
    stand.index.name(stand.other, sent, first_response(prompt))
    stand.index.withdraw(stand.other, sent)
    stand.pass_time()
    stand.index.report(stand.bit, (), engine_blocks(prompt)[10:])
    assert [bits for _, bits in stand.index.match(sent, ALL)] == [
        stand.other,
        stand.bit | stand.other,
    ]


def test_reports_that_end_leave_nothing_behind():
    stand, prompt = Reporting(), ids(320)
    stand.compute(prompt)
    stand.index.record(stand.bit, blocks(ids(320, 1_000)).newest_last)
    stand.index.name(stand.bit, blocks(ids(320, 1_000)), first_response(ids(320, 1_000)))
    stand.index.forget_reports(stand.bit)
    assert stand.expected(prompt) == stand.expected(ids(320, 1_000)) == 0
    stand.index.name(stand.bit, blocks(prompt), first_response(prompt))
    stand.index.remove_endpoint(stand.bit)
    assert stand.index.match(blocks(prompt), ALL) == []


def test_where_the_end_of_a_text_is_estimated_too_far_later_prompts_correct_it():
    """A beginning of few tokens, and an end of many: 2,000 characters are 200 tokens, not 700."""
    stand, head = Reporting(), text(2_000)
    for turn in range(2):
        tail, tokens = text(2_000, "xyzuvw"[turn % 6]) + str(turn), (*ids(200), *ids(1_200, turn))
        sent, found = blocks(head + tail), engine_blocks(tokens)
        stand.index.name(stand.bit, sent, first_response(tokens))
        stand.index.report(stand.bit, found, ())
    shared = blocks(head + "something else")
    (depth, _), *_ = stand.index.match(shared, stand.bit)
    assert depth == len(shared.keys)
    assert 100 < stand.index.cached_tokens(shared, depth, 210) <= 200


def test_reports_and_names_are_bounded_and_take_less_than_five_milliseconds():
    stand = Reporting()

    def assert_is_fast(work: Callable[[], None]) -> None:
        began = time.process_time()
        work()
        assert time.process_time() - began < 0.005 * SLOWEST

    def fill() -> None:
        for start in range(0, 3 * REPORTED_AN_ENDPOINT, BLOCKS_AT_ONCE):
            stored = tuple(range(start, start + BLOCKS_AT_ONCE))
            assert_is_fast(lambda stored=stored: stand.index.report(stand.bit, stored, ()))
        assert len(stand.index._reported.holders) == REPORTED_AN_ENDPOINT

    fill()
    assert_is_fast(lambda: stand.index.forget_reports(stand.bit))
    assert not stand.index._reported.holders
    fill()
    stand.index.settle(stand.bit)
    for start in range(1_000):
        prompt = ids(4_000, start * 10_000)
        stand.index.name(stand.bit, blocks(prompt), first_response(prompt))
    assert len(stand.index._named) <= NAMED_BLOCKS


def test_a_beginning_that_prompts_share_outlives_other_blocks():
    stand, head = Reporting(), ids(320)
    stand.compute(head)
    for start in range(0, 4 * REPORTED_AN_ENDPOINT, BLOCKS_AT_ONCE):
        stand.index.report(stand.bit, tuple(range(start, start + BLOCKS_AT_ONCE)), ())
        again = (*head, *ids(64, start + 1_000))
        stand.index.name(stand.bit, blocks(again), first_response(again, 320))
    stand.pass_time()
    assert stand.expected((*head, *ids(64, 500))) >= 288


class CacheOfBlocks:
    """An engine's cache that a test fills and evicts from, with a proxy that sees it late."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, {}

    def found(self, prompt: tuple[int, ...]) -> int:
        numbers = engine_blocks(prompt)
        return SIZE * next(
            (n for n, one in enumerate(numbers) if one not in self.held), len(numbers)
        )

    def store(self, prompt: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """The blocks that are new, and those that were evicted for them, last ones first."""
        new = [one for one in engine_blocks(prompt) if one not in self.held]
        for one in reversed(engine_blocks(prompt)):
            self.held.pop(one, None)
            self.held[one] = None
        gone = list(self.held)[: max(0, len(self.held) - self.most)]
        for one in gone:
            del self.held[one]
        return [one for one in new if one in self.held], gone


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 64, 160, 320])), max_size=20),
    st.integers(5, 60),
)
def test_with_reports_the_expectation_is_what_the_engine_finds(sent, most):
    stand, cache = Reporting(), CacheOfBlocks(most)
    for which, shared in sent:
        prompt = (*ids(shared), *ids(640 - shared, 10_000 * (which + 1)))
        expected, found = stand.expected(prompt), cache.found(prompt)
        assert 0 <= found - expected < 2 * SIZE + SIZE
        new, gone = cache.store(prompt)
        stand.index.record(stand.bit, blocks(prompt).newest_last)
        stand.index.name(stand.bit, blocks(prompt), first_response(prompt, found))
        stand.index.report(stand.bit, new, gone)
        stand.pass_time()
