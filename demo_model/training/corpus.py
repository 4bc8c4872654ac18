"""Mixtures of the kinds of training conversations, as data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from demo_model.training.chat import Conversation
from demo_model.training.copying import copying
from demo_model.training.extraction import extraction, extractions, made_extractions
from demo_model.training.lexicon import Habits, Lexicon, Split
from demo_model.training.manners import chat, manner
from demo_model.training.plain import plain
from demo_model.training.structured import structured, summary
from demo_model.training.toolchat import (
    after_result,
    any_question,
    long_chat,
    no_call,
    one_call,
    two_calls,
)

Writer = Callable[[Lexicon], Conversation]
Shares = tuple[tuple[Writer, float], ...]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Writers with their shares, and their habits."""

    shares: Shares
    habits: Habits = field(default_factory=Habits)


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

# Short conversations get more weight again: exact copies are learned last.
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

# The rate rises again: words of any spelling, and the weakest skills.
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
    Habits(odd_words=0.5, disguises=0.5),
)

# The rate falls: closer to the evaluation, with every skill.
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
    Habits(odd_words=0.3, disguises=0.45),
)

# Third cycle: the most frequent mistakes of the second, and fewer memorized tools.
THIRD = Mixture(
    (
        (long_chat, 0.26),
        (one_call, 0.13),
        (two_calls, 0.19),
        (no_call, 0.04),
        (after_result, 0.04),
        (extraction, 0.03),
        (extractions, 0.04),
        (made_extractions, 0.11),
        (copying, 0.08),
        (chat, 0.04),
        (manner, 0.04),
    ),
    Habits(
        odd_words=0.25,
        piece_words=0.4,
        families=0.45,
        disguises=0.6,
        alike=0.35,
        siblings=0.2,
        odd_verbs=0.35,
        values_first=0.3,
        loose_results=0.6,
        has_one_joker=True,
    ),
)

# Its end: closer to the evaluation, except values before their names, learned last.
ENDING = Mixture(
    (
        (long_chat, 0.24),
        (one_call, 0.11),
        (two_calls, 0.18),
        (no_call, 0.05),
        (after_result, 0.03),
        (extraction, 0.03),
        (extractions, 0.03),
        (made_extractions, 0.13),
        (copying, 0.09),
        (chat, 0.06),
        (manner, 0.05),
    ),
    Habits(
        odd_words=0.25,
        piece_words=0.3,
        families=0.5,
        disguises=0.5,
        alike=0.3,
        siblings=0.12,
        odd_verbs=0.25,
        values_first=0.4,
        loose_results=0.5,
        free_results=0.2,
        has_one_joker=True,
    ),
)

# Two more layers: skills of several steps, above all which value belongs to which name.
DEEPER = Mixture(
    (
        (long_chat, 0.22),
        (one_call, 0.12),
        (two_calls, 0.19),
        (no_call, 0.05),
        (after_result, 0.02),
        (extraction, 0.05),
        (extractions, 0.03),
        (made_extractions, 0.14),
        (copying, 0.09),
        (chat, 0.05),
        (manner, 0.04),
    ),
    Habits(
        odd_words=0.25,
        piece_words=0.25,
        families=0.5,
        disguises=0.5,
        alike=0.35,
        siblings=0.1,
        odd_verbs=0.25,
        values_first=0.35,
        loose_results=0.5,
        free_results=0.2,
        has_one_joker=True,
    ),
)

# The same, with twice as many hand-written kinds of tools.
BROADER = replace(
    DEEPER, habits=replace(DEEPER.habits, families=0.55, alike=0.3, has_later_kinds=True)
)

# The same skills; any word may name a tool, and no request is ambiguous.
PHRASES = Mixture(
    (
        (long_chat, 0.27),
        (one_call, 0.15),
        (two_calls, 0.2),
        (no_call, 0.06),
        (after_result, 0.02),
        (extraction, 0.03),
        (extractions, 0.03),
        (made_extractions, 0.1),
        (copying, 0.07),
        (chat, 0.04),
        (manner, 0.03),
    ),
    replace(
        BROADER.habits,
        odd_words=0.2,
        piece_words=0.2,
        families=0.5,
        siblings=0.08,
        phrasal=0.35,
        values_first=0.3,
        loose_results=0.45,
        has_fair_disguises=True,
    ),
)

# The rate falls: closer to the evaluation.
PLAINER = Mixture(
    (
        (long_chat, 0.22),
        (one_call, 0.18),
        (two_calls, 0.2),
        (no_call, 0.08),
        (after_result, 0.02),
        (extraction, 0.05),
        (extractions, 0.02),
        (made_extractions, 0.08),
        (copying, 0.08),
        (chat, 0.04),
        (manner, 0.03),
    ),
    replace(
        PHRASES.habits,
        odd_words=0.12,
        piece_words=0.12,
        families=0.55,
        disguises=0.4,
        siblings=0.05,
        odd_verbs=0.15,
        phrasal=0.25,
        values_first=0.2,
        loose_results=0.3,
    ),
)

# The same, and answers that a JSON schema holds.
STRUCTURED = Mixture(
    (
        (structured, 0.33),
        (summary, 0.05),
        (long_chat, 0.13),
        (one_call, 0.11),
        (two_calls, 0.13),
        (no_call, 0.06),
        (after_result, 0.02),
        (extraction, 0.04),
        (made_extractions, 0.03),
        (copying, 0.05),
        (chat, 0.03),
        (manner, 0.02),
    ),
    PLAINER.habits,
)

# Closer to the evaluation again: calls had become worse.
BALANCED = Mixture(
    (
        (structured, 0.15),
        (summary, 0.02),
        (long_chat, 0.18),
        (one_call, 0.2),
        (two_calls, 0.19),
        (no_call, 0.06),
        (after_result, 0.02),
        (extraction, 0.06),
        (made_extractions, 0.04),
        (copying, 0.05),
        (chat, 0.02),
        (manner, 0.01),
    ),
    PLAINER.habits,
)

# Seventh cycle: strings that end, raw prompts, and questions that no tool fits.
ASKING = Mixture(
    (
        (structured, 0.2),
        (summary, 0.02),
        (any_question, 0.06),
        (plain, 0.06),
        (long_chat, 0.13),
        (one_call, 0.16),
        (two_calls, 0.15),
        (no_call, 0.05),
        (after_result, 0.02),
        (extraction, 0.05),
        (made_extractions, 0.03),
        (copying, 0.04),
        (chat, 0.02),
        (manner, 0.01),
    ),
    replace(PLAINER.habits, slips=0.4, has_questions=True, unsaid=0.1),
)

# The same; under a schema the model still called tools that did not fit.
CLEARER = replace(ASKING, habits=replace(ASKING.habits, unsaid=0.05, unsaid_beside_tools=0.4))


# Beside tools, some small talk was answered by JSON.
SETTLED = Mixture(
    (
        (structured, 0.14),
        (summary, 0.02),
        (any_question, 0.07),
        (plain, 0.04),
        (long_chat, 0.13),
        (one_call, 0.16),
        (two_calls, 0.15),
        (no_call, 0.14),
        (after_result, 0.02),
        (extraction, 0.05),
        (made_extractions, 0.02),
        (copying, 0.02),
        (chat, 0.03),
        (manner, 0.01),
    ),
    replace(CLEARER.habits, unsaid_beside_tools=0.12),
)

# Small talk stays text, and a question beside tools becomes JSON where a schema wants it.
APART = replace(
    SETTLED,
    shares=((structured, 0.2), *((each, share * 0.93) for each, share in SETTLED.shares[1:])),
    habits=replace(SETTLED.habits, unsaid_beside_tools=0.05, unsaid_of_questions=0.55),
)


def conversations(
    mixture: Mixture, seed: int, pieces: tuple[str, ...] = ()
) -> Iterator[Conversation]:
    """Yields endlessly; equal seeds and pieces of a tokenizer give equal conversations."""
    lexicon = Lexicon(random.Random(seed), Split.TRAIN, mixture.habits, pieces)
    writers, weights = zip(*mixture.shares, strict=True)
    while True:
        yield lexicon.rng.choices(writers, weights)[0](lexicon)
