"""The mixture of all kinds of training conversations, as data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from build_engines.demo.chat import Conversation
from build_engines.demo.copying import copying
from build_engines.demo.extraction import extraction, extractions, made_extractions
from build_engines.demo.lexicon import Lexicon, Split
from build_engines.demo.manners import chat, manner
from build_engines.demo.toolchat import after_result, long_chat, no_call, one_call, two_calls

Writer = Callable[[Lexicon], Conversation]
Shares = tuple[tuple[Writer, float], ...]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Writers by their share, and what their lexicon is like."""

    shares: Shares
    odd_words: float = 0.0
    disguises: float = 0.35


# Copying comes first: calls and JSON are built on it.
FIRST = Mixture(
    (
        (copying, 0.6),
        (extractions, 0.15),
        (chat, 0.1),
        (one_call, 0.05),
        (long_chat, 0.1),
    )
)
MAIN = Mixture(
    (
        (long_chat, 0.33),
        (one_call, 0.13),
        (two_calls, 0.11),
        (no_call, 0.05),
        (after_result, 0.03),
        (extraction, 0.04),
        (extractions, 0.12),
        (copying, 0.05),
        (chat, 0.1),
        (manner, 0.04),
    )
)

# Short conversations weigh more again: exact copies are what is still learned late.
LATE = Mixture(
    (
        (long_chat, 0.27),
        (one_call, 0.13),
        (two_calls, 0.12),
        (no_call, 0.05),
        (after_result, 0.04),
        (extraction, 0.05),
        (extractions, 0.12),
        (copying, 0.08),
        (chat, 0.09),
        (manner, 0.05),
    )
)

# With the rates up again: words of any spelling, and the skills that were weakest.
WIDER = Mixture(
    (
        (long_chat, 0.29),
        (one_call, 0.1),
        (two_calls, 0.15),
        (no_call, 0.05),
        (after_result, 0.03),
        (extraction, 0.03),
        (extractions, 0.06),
        (made_extractions, 0.11),
        (copying, 0.09),
        (chat, 0.05),
        (manner, 0.04),
    ),
    odd_words=0.5,
    disguises=0.5,
)

# While the rates fall: nearer to what is asked later, and no skill forgotten.
CLOSING = Mixture(
    (
        (long_chat, 0.28),
        (one_call, 0.1),
        (two_calls, 0.16),
        (no_call, 0.05),
        (after_result, 0.03),
        (extraction, 0.03),
        (extractions, 0.05),
        (made_extractions, 0.09),
        (copying, 0.08),
        (chat, 0.07),
        (manner, 0.06),
    ),
    odd_words=0.3,
    disguises=0.45,
)


def conversations(mixture: Mixture, seed: int) -> Iterator[Conversation]:
    """Without end, and the same for the same seed."""
    lexicon = Lexicon(
        random.Random(seed),
        Split.TRAIN,
        odd_words=mixture.odd_words,
        disguises=mixture.disguises,
    )
    writers, weights = zip(*mixture.shares, strict=True)
    while True:
        yield lexicon.rng.choices(writers, weights)[0](lexicon)
