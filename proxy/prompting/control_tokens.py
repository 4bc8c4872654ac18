"""The tokens that steer a model, found in texts. Used by callers_text and prompt_writer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.prompting.word_trie import one_of
from triton_openai.proxy.syntax import parsers
from triton_openai.proxy.syntax.reasoning import families as reasoning_families
from triton_openai.proxy.syntax.tools import families as tool_families

LONG_JSON = 32_768  # characters
SHORT_START = 3  # characters; fewer are looked for from the other side, at a rest of a token


@dataclass(frozen=True, slots=True)
class ControlTokens:
    """in_turns: their texts. in_answers: those of them that are no part of an assistant's turn.

    An assistant's turn keeps the delimiters of its reasoning and of its tool calls: models write
    them, clients send them back, and they give no role that the turn does not have.
    """

    in_turns: tuple[str, ...] = ()
    in_answers: tuple[str, ...] = ()


NO_TOKENS = ControlTokens()


@lru_cache(maxsize=64)
def of_card(card: ModelCard) -> ControlTokens:
    """Those of a model that keeps them apart from its callers' text."""
    if not card.protects_control_tokens:
        return NO_TOKENS
    special = {text.decode() for text in card.facts.special_tokens.values() if text}
    syntax = frozenset(_syntax(card))
    templates = f"{card.facts.chat_template or ''}{card.facts.tool_template or ''}"
    marks = {
        mark
        for mark in card.facts.added_marks
        if mark in templates or any(mark in one for one in syntax)
    }
    return ControlTokens(
        in_turns=tuple(sorted(special | marks)),
        in_answers=tuple(sorted((special | marks) - syntax)),
    )


def _syntax(card: ModelCard) -> Iterator[str]:
    """The delimiters of reasoning and calls: the card's families', and the template's."""
    named, facts = parsers.families_of(card), card.facts
    thinking = {named.reasoning, reasoning_families.from_template(facts.chat_template or "")}
    for name in thinking - {None}:
        family = reasoning_families.family(str(name)).parser_type
        yield from (*family.starts, *family.ends)
    calling = {named.tools, tool_families.from_template(facts.tool_template or "")}
    for name in calling - {None}:
        yield from tool_families.family(str(name)).parser_type.marks()


def cannot_be_plain(text: str, spans: bytes, card: ModelCard) -> InvalidRequest:
    """The refusal of a prompt whose model takes no `plain_spans`."""
    start, end = memoryview(spans).cast("i")[:2]
    return InvalidRequest(
        f"The messages or tools hold {text[start:end]!r}, which is a control token of the model "
        f"{card.name!r}. It was built by an earlier version, and cannot keep it plain text: build "
        "the model again, or let callers' control tokens be special (CALLERS_CONTROL_TOKENS).",
        code=ErrorCode.UNSUPPORTED_PARAMETER,
        param="messages",
    )


class Patterns:
    """What finds some tokens in texts. whole: a token."""

    def __init__(self, texts: Iterable[str]) -> None:
        tokens = [text for text in texts if text]
        long = [token for token in tokens if len(token) >= SHORT_START]
        self.whole = re.compile(f"({one_of(tokens)})")
        self._start = re.compile(one_of(token[:SHORT_START] for token in tokens))
        self._longest = max(map(len, tokens), default=1)
        self._is_same_in_json = all(
            json.dumps(token, ensure_ascii=False) == f'"{token}"' for token in tokens
        )
        self._json_text = re.compile(rf'"(?:\s|\\[nrtfb])*([^"]{{1,{self._longest}}})')
        # Pieces: a start that is no rest, a rest that lacks little, what lacks only brackets.
        self._starts = frozenset(
            token[:at]
            for token in long
            for at in range(min(SHORT_START, len(token) - 1), len(token))
        )
        self._rests = _Heads(token[at:] for token in long for at in (1, 2) if len(token) > at + 1)
        self._inners = frozenset(
            token[left : len(token) - right]
            for token in long
            for left in (1, 2)
            for right in (1, 2)
        ) - {""}

    def split(self, text: str) -> list[str]:
        """Every second piece is a token."""
        return self.whole.split(text)

    def may_be_in(self, text: str) -> bool:
        """Whether it has a token, or what may become one beside other text."""
        if self._start.search(text):
            return True
        stripped = text.strip()
        return self.begins_amid(stripped) or self.ends_amid(stripped)

    def may_be_in_json(self, written: str) -> bool:
        """As `may_be_in`, for every string of a JSON text. Long JSON counts as holding one."""
        if len(written) > LONG_JSON or not self._is_same_in_json:
            return True
        if self._start.search(written):
            return True
        for text in set(self._json_text.findall(written)):
            stripped = text.strip()
            if self.begins_amid(stripped) or self.begins_amid(stripped.partition("\\")[0].strip()):
                return True
        return False

    def begins_amid(self, stripped: str) -> bool:
        """Whether a token may have begun before the text."""
        return stripped in self._inners or self._rests.are_at_start(stripped)

    def ends_amid(self, stripped: str) -> bool:
        """Whether a token may end behind the text, as where a template writes `<`, a caller's text
        and `>`.
        """
        if stripped in self._inners:
            return True
        last = stripped[-self._longest :]
        return any(last[token.start() :] in self._starts for token in self._start.finditer(last))


class _Heads:
    """Words that texts may start with."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(words)
        lengths: dict[str, set[int]] = {}
        for word in self._words:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(found) for first, found in lengths.items()}

    def are_at_start(self, text: str) -> bool:
        lengths = self._lengths.get(text[:1], ())
        return any(text[:length] in self._words for length in lengths)


@lru_cache(maxsize=64)
def patterns(texts: tuple[str, ...]) -> Patterns:
    return Patterns(texts)


def prepare(card: ModelCard) -> None:
    """Compiles the model's patterns, which takes 0.15 s for 6,000 tokens. For a thread."""
    control = of_card(card)
    for texts in (control.in_turns, control.in_answers):
        patterns(texts)
