"""Which endpoints have the beginning of a prompt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.pools.prefix_index import (
    BLOCK_SIZES,
    CHARACTER_ENDS,
    ID_ENDS,
    MOST_LEVELS,
    PrefixIndex,
    PromptBlocks,
    prompt_blocks,
)

ALL = (1 << 100) - 1


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
