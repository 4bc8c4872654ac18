"""The tokens that control a model, and the search for them in texts.

Called by `callers_text` and `preparation`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from proxy.domain.errors import InvalidRequest, unsupported
from proxy.domain.model import ModelCard
from proxy.language.syntax.families import (
    REASONING_FAMILIES,
    TOOL_FAMILIES,
    in_template,
    reasoning_family,
    tool_family,
)
from proxy.language.syntax.parsers import syntax_of

LONG_JSON = 32_768  # characters
SHORT_START = 3  # characters; a shorter begin of a token is found by the rest of the token instead

_Node = dict[str, Any]
_END = ""


@dataclass(frozen=True, slots=True)
class ControlTokens:
    """Texts of control tokens that stay plain text. in_turns: in all but the assistant's messages.

    in_answers: in the assistant's messages, which keep the delimiters of reasoning and tool calls:
    models write them, clients send them back, and they cannot begin another role's message.
    """

    in_turns: tuple[str, ...] = ()
    in_answers: tuple[str, ...] = ()


NO_TOKENS = ControlTokens()


@lru_cache(maxsize=64)
def of_card(card: ModelCard) -> ControlTokens:
    """The model's control tokens; none for a model that gives callers' texts their effect."""
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
    """The delimiters of reasoning and calls, of the card's families and of the template's."""
    named, facts = syntax_of(card), card.facts
    for name in {named.reasoning, in_template(facts.chat_template or "", REASONING_FAMILIES)}:
        if name is not None:
            family = reasoning_family(name)
            yield from (*family.starts, *family.ends)
    for name in {named.tools, in_template(facts.tool_template or "", TOOL_FAMILIES)}:
        if name is not None:
            yield from tool_family(name).marks()


def cannot_be_plain(text: str, spans: bytes, card: ModelCard) -> InvalidRequest:
    """The error for a prompt whose model does not have the input `plain_spans`."""
    start, end = memoryview(spans).cast("i")[:2]
    if card.facts.adopted is None:
        why, remedy = "was built by an earlier version, which", "build the model again"
    else:
        why, remedy = "was not built by this project, and", "leave it out"
    return unsupported(
        f"The messages or tools contain {text[start:end]!r}, which is a control token of the model "
        f"{card.name!r}. The model {why} cannot treat it as plain text: {remedy}, or set "
        "CALLERS_CONTROL_TOKENS=special to give callers' control tokens their effect.",
        param="messages",
    )


class Patterns:
    """Finds tokens in texts, whole ones and parts at a text's ends. whole: matches a token."""

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
        # Parts of tokens: begins of at least SHORT_START, ends that lack one or two characters, and
        # tokens that lack one or two at both ends, such as their brackets.
        self._starts = frozenset(
            token[:at]
            for token in long
            for at in range(min(SHORT_START, len(token) - 1), len(token))
        )
        self._rests = _Prefixes(
            token[at:] for token in long for at in (1, 2) if len(token) > at + 1
        )
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
        """Whether it contains a token, or a part that other text may complete."""
        if self._start.search(text):
            return True
        stripped = text.strip()
        return self.may_continue_a_token(stripped) or self.may_begin_a_token(stripped)

    def may_be_in_json(self, written: str) -> bool:
        """Like `may_be_in`, for every string of a JSON text."""
        if not self._is_same_in_json:
            return True
        if self._start.search(written):
            return True
        for text in set(self._json_text.findall(written)):
            stripped = text.strip()
            if self.may_continue_a_token(stripped) or self.may_continue_a_token(
                stripped.partition("\\")[0].strip()
            ):
                return True
        return False

    def may_continue_a_token(self, stripped: str) -> bool:
        """Whether a token may have begun before the text."""
        return stripped in self._inners or self._rests.are_at_start(stripped)

    def may_begin_a_token(self, stripped: str) -> bool:
        """Whether a token may go on after the text, as when a template writes `>` there."""
        if stripped in self._inners:
            return True
        last = stripped[-self._longest :]
        return any(last[token.start() :] in self._starts for token in self._start.finditer(last))


class _Prefixes:
    """A set of words that texts may start with."""

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
    """Compiles the model's patterns. Call it in a thread: it takes 0.15 s for 6,000 tokens."""
    control = of_card(card)
    for texts in (control.in_turns, control.in_answers):
        patterns(texts)


def one_of(words: Iterable[str]) -> str:
    """Many words as one pattern, a trie, whose cost does not grow with their number.

    It matches the longest word at a place, and nothing if there are no words.
    """
    root: _Node = {}
    for word in words:
        node = root
        for character in word:
            node = node.setdefault(character, {})
        node[_END] = {}
    return _written(root) if root else r"(?!)"


def _written(node: _Node) -> str:
    """The pattern below a node. Characters without a fork are one piece, so that groups nest no
    deeper than the forks.
    """
    branches = [_run(character, after) for character, after in node.items() if character != _END]
    if not branches:
        return ""
    if _END not in node:
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return f"(?:{'|'.join(branches)})?"


def _run(character: str, after: _Node) -> str:
    run = [character]
    while len(after) == 1 and _END not in after:
        ((character, after),) = after.items()
        run.append(character)
    return re.escape("".join(run)) + _written(after)
