"""The base of every reasoning parser, and the base of those with a tag at either end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import Self

from proxy.domain.events import ReasoningDelta, ReasoningEvent, TextDelta
from proxy.language.syntax.parsing.delimiters import Delimiters
from proxy.language.syntax.parsing.push_parser import PushParser
from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.reasoning.reasoning_syntax import ReasoningSyntax


class ReasoningParser(PushParser[ReasoningEvent]):
    """Splits an answer into reasoning and text; `is_thinking` while the model reasons.

    White space around the reasoning belongs to the syntax. The text goes on to the tool parser, so
    it still contains the delimiters of calls.

    Args:
        is_inside: the prompt has opened the reasoning already, see `opens_in`.
        tool_starts: marks that open tool calls and never occur in text; they end a reasoning that
            the model left open.
    """

    starts: ClassVar[tuple[str, ...]] = ()
    ends: ClassVar[tuple[str, ...]] = ()
    # What the proxy writes to end the reasoning in the model's place.
    closing: ClassVar[str] = ""
    # What the model writes between the reasoning and the text.
    before_answer: ClassVar[str] = ""
    # Further marks of the syntax, in case they are special tokens.
    inner_marks: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, is_inside: bool = False, tool_starts: Sequence[str] = ()) -> None:
        super().__init__()
        self._is_inside = is_inside
        self._tool_starts = tuple(tool_starts)
        self._blank: list[str] | None = None
        self.is_thinking = is_inside

    @classmethod
    def marks(cls) -> tuple[str, ...]:
        """All marks of the syntax: special tokens among them must reach the parser as text."""
        return (*cls.starts, *cls.ends, *cls.inner_marks)

    @classmethod
    def end_of_thought(cls) -> str:
        """What the model writes to end the reasoning."""
        return cls.closing.strip().removesuffix(cls.before_answer)

    @classmethod
    def syntax(cls) -> ReasoningSyntax:
        """The marks that guides need."""
        return ReasoningSyntax(
            begin=cls.starts[0], end=cls.end_of_thought(), before_answer=cls.before_answer
        )

    @classmethod
    def opens_in(cls, prompt_tail: str) -> bool:
        """Whether a prompt with this end has opened the reasoning."""
        return prompt_tail.rstrip().endswith(cls.starts)

    @classmethod
    def behind(cls, prompt: str, begun: str = "", *, tool_starts: Sequence[str] = ()) -> Self:
        """A parser for what follows the prompt. `begun`: the answer's first words, if the prompt
        ends with them.
        """
        before = prompt.removesuffix(begun.lstrip())
        parser = cls(is_inside=cls.opens_in(before), tool_starts=tool_starts)
        parser.push(begun.rstrip())
        parser._reader.rest()  # a partial mark: the caller has it already
        return parser

    def _emit_text(self, text: str) -> None:
        self._events.delta("text", TextDelta, text)

    def _begin_reasoning(self) -> None:
        self._blank = None

    def _emit_reasoning(self, text: str) -> None:
        """Emits reasoning without the white space at its begin and its end: white space waits
        until more reasoning follows it.
        """
        if self._blank is None:
            text = text.lstrip()
            if not text:
                return
            self._blank = []
        kept = text.rstrip()
        if kept:
            self._events.delta("thought", ReasoningDelta, "".join(self._blank) + kept)
            self._blank = [text[len(text.rstrip()) :]]
        else:
            self._blank.append(text)


class TaggedReasoning(ReasoningParser):
    """Reasoning between a start and an end tag, before the text."""

    # Whether the tags count in the middle of the text, too: they do where they are special tokens.
    is_anywhere: ClassVar[bool] = False
    # A word behind the start tag, which belongs to it.
    label: ClassVar[str] = ""

    def _parse(self) -> Steps[None]:
        is_inside = self._is_inside or (yield from self._opens())
        marks = Delimiters(self.starts if self.is_anywhere else ())
        while True:
            if is_inside:
                yield from self._reasoning()
            if not (yield from self._reader.until(marks, self._emit_text)):
                return
            is_inside = yield from self._starts()

    def _opens(self) -> Steps[bool]:
        gap = yield from self._reader.space()
        if (yield from self._starts()):
            return True
        self._emit_text(gap)
        return False

    def _starts(self) -> Steps[bool]:
        for start in self.starts:
            if (yield from self._reader.accept(start)):
                return True
        return False

    def _reasoning(self) -> Steps[None]:
        """Reads up to the end tag and the white space behind it, or up to the start of a call."""
        self.is_thinking = True
        yield from self._reader.space()
        yield from self._starts()  # some models repeat the tag that the prompt ends with
        if self.label:
            yield from self._reader.accept(self.label)
        yield from self._reader.space()
        self._begin_reasoning()
        mark = yield from self._reader.until(
            Delimiters([*self.ends, *self._tool_starts]), self._emit_reasoning, leaves_partial=True
        )
        self.is_thinking = False
        if mark in self.ends:
            self._reader.take(len(mark))
            yield from self._reader.space()
        elif not mark:
            self._emit_reasoning(self._reader.rest())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFamily:
    """A way of marking thoughts, which several models may share.

    parser_type: its marks are also what guides are made of, see `ReasoningParser.syntax`.
    template_marks: alternatives; a chat template that contains all marks of one of them belongs to
    the family.
    """

    parser_type: type[ReasoningParser]
    template_marks: tuple[tuple[str, ...], ...] = ()
