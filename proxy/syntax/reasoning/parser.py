"""The frame of every reasoning parser, and the one for reasoning between two tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import Self

from triton_openai.proxy.domain.events import ReasoningDelta, ReasoningEvent, TextDelta
from triton_openai.proxy.syntax.parsing.delimiters import Delimiters
from triton_openai.proxy.syntax.parsing.parser import PushParser
from triton_openai.proxy.syntax.parsing.reader import Steps


class ReasoningParser(PushParser[ReasoningEvent]):
    """Text of an answer -> reasoning and the rest; `is_thinking` while it is reasoning.

    White space at the borders of reasoning belongs to the syntax. What comes out as text is for
    the tool parser, delimiters of calls included.

    Args:
        is_inside: the prompt opened the reasoning already, see `opens_in`.
        tool_starts: what opens a call or a section of calls, and no text has; it ends reasoning
            left open.
    """

    starts: ClassVar[tuple[str, ...]] = ()
    ends: ClassVar[tuple[str, ...]] = ()
    # What ends the reasoning where somebody else than the model has to.
    closing: ClassVar[str] = ""
    # What stands between reasoning and text.
    before_answer: ClassVar[str] = ""
    # Further marks of the syntax, where they may be special tokens.
    inner_marks: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, is_inside: bool = False, tool_starts: Sequence[str] = ()) -> None:
        super().__init__()
        self._is_inside = is_inside
        self._tool_starts = tuple(tool_starts)
        self._blank: list[str] | None = None
        self.is_thinking = is_inside

    @classmethod
    def marks(cls) -> tuple[str, ...]:
        """What may be special tokens of the model, which the parser must see."""
        return (*cls.starts, *cls.ends, *cls.inner_marks)

    @classmethod
    def end_of_thought(cls) -> str:
        """What the model writes to end it."""
        return cls.closing.strip().removesuffix(cls.before_answer)

    @classmethod
    def opens_in(cls, prompt_tail: str) -> bool:
        """Whether a prompt that ends so has opened the reasoning."""
        return prompt_tail.rstrip().endswith(cls.starts)

    @classmethod
    def behind(cls, prompt: str, begun: str = "", *, tool_starts: Sequence[str] = ()) -> Self:
        """Of what follows a prompt that ends with `begun`, the first words of the answer."""
        before = prompt.removesuffix(begun.lstrip())
        parser = cls(is_inside=cls.opens_in(before), tool_starts=tool_starts)
        parser.push(begun.rstrip())
        parser._reader.rest()  # half a mark, which the caller has already
        return parser

    def _say(self, text: str) -> None:
        self._outbox.delta("text", TextDelta, text)

    def _begin_thought(self) -> None:
        self._blank = None

    def _think(self, text: str) -> None:
        """White space waits for what follows it, so that none is left at the end; at the begin it
        is dropped.
        """
        if self._blank is None:
            text = text.lstrip()
            if not text:
                return
            self._blank = []
        kept = text.rstrip()
        if kept:
            self._outbox.delta("thought", ReasoningDelta, "".join(self._blank) + kept)
            self._blank = [text[len(text.rstrip()) :]]
        else:
            self._blank.append(text)


class TaggedReasoning(ReasoningParser):
    """Reasoning first, between a start and an end."""

    # Tags that are special tokens stand for themselves wherever they come.
    is_anywhere: ClassVar[bool] = False
    # A word that the start tag carries.
    label: ClassVar[str] = ""

    def _parse(self) -> Steps[None]:
        is_inside = self._is_inside or (yield from self._opens())
        marks = Delimiters(self.starts if self.is_anywhere else ())
        while True:
            if is_inside:
                yield from self._thought()
            if not (yield from self._reader.until(marks, self._say)):
                return
            is_inside = yield from self._starts()

    def _opens(self) -> Steps[bool]:
        gap = yield from self._reader.space()
        if (yield from self._starts()):
            return True
        self._say(gap)
        return False

    def _starts(self) -> Steps[bool]:
        for start in self.starts:
            if (yield from self._reader.accept(start)):
                return True
        return False

    def _thought(self) -> Steps[None]:
        """To the end tag and the white space behind it, or to the start of a call."""
        self.is_thinking = True
        yield from self._reader.space()
        yield from self._starts()  # some models repeat what the prompt opened
        if self.label:
            yield from self._reader.accept(self.label)
        yield from self._reader.space()
        self._begin_thought()
        mark = yield from self._reader.until(
            Delimiters([*self.ends, *self._tool_starts]), self._think, leaves_half=True
        )
        self.is_thinking = False
        if mark in self.ends:
            self._reader.take(len(mark))
            yield from self._reader.space()
        elif not mark:
            self._think(self._reader.rest())
