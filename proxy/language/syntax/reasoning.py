"""The families of reasoning: their parsers, and guides in which the answer follows the reasoning.

A parser's class is its family.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from typing_extensions import Self

from proxy.domain.constraint import Constraint
from proxy.domain.events import ReasoningDelta, ReasoningEvent, TextDelta
from proxy.language.structured.structural_tags import (
    Format,
    const_string,
    format_of,
    optional,
    regex,
    sequence,
    structural_tag,
    tag,
)
from proxy.language.syntax.code_spans import CodeSpans
from proxy.language.syntax.reader import Delimiters, PassOn, PushParser, Steps, Stripped, delimiters

_ANY_TEXT: Format = {"type": "any_text"}
_GAP = regex("[ \\n]{0,4}")

# Characters of an open thought that are held back behind a call's mark: more than a call has.
MOST_HELD = 262_144
# Characters of an answer that are held back until it is known whether a thought comes first.
MOST_UNDECIDED = 4_096


class ReasoningParser(PushParser[ReasoningEvent]):
    """Splits an answer into reasoning and text; `is_thinking` while the model reasons.

    White space around the reasoning belongs to the syntax. The text is passed to the tool parser,
    so it still contains the delimiters of calls.

    A call in a thought is a part of the thought, unless the thought never ends. So from a call's
    mark on, a thought is held back: until it ends, or for MOST_HELD characters, behind which the
    model still thinks. What is held when the answer ends is its last text, and the `draft`.

    Args:
        is_inside: the prompt has opened the reasoning already, see `opens_in`.
        may_be_inside: it has not, but the model may write as if it had, see `is_left_out`.
        tool_starts: marks that open tool calls and never occur in text.

    is_undecided: what was pushed so far is a thought if its end comes soon, else it is text.

    on_held: called with what is held back, piece by piece, and with "" when it turns out to be a
        part of the thought.
    """

    starts: ClassVar[tuple[str, ...]] = ()
    ends: ClassVar[tuple[str, ...]] = ()
    # What the proxy writes to end the reasoning in the model's place.
    closing: ClassVar[str] = ""
    # What the model writes between the reasoning and the text.
    before_answer: ClassVar[str] = ""
    is_before_calls: ClassVar[bool] = False  # and between the reasoning and calls
    # Marks around the text, which the client does not get.
    wrappers: ClassVar[tuple[str, ...]] = ()
    # Further marks of the syntax, in case they are special tokens.
    inner_marks: ClassVar[tuple[str, ...]] = ()
    # Alternatives: a chat template that contains all marks of one of them belongs to the family.
    # None for its first start alone.
    template_marks: ClassVar[tuple[tuple[str, ...], ...] | None] = None

    def __init__(
        self,
        *,
        is_inside: bool = False,
        may_be_inside: bool = False,
        tool_starts: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._is_inside = is_inside
        self.is_undecided = may_be_inside and not is_inside
        self._tool_starts = tuple(tool_starts)
        self._begin_reasoning()
        self._held: list[str] = []
        self._code = CodeSpans()
        self.draft = ""
        self.on_held: PassOn = _ignore
        self.is_thinking = is_inside
        self.may_think_again = True  # directly behind a thought

    @classmethod
    def marks(cls) -> tuple[str, ...]:
        """All marks of the syntax: special tokens among them must reach the parser as text."""
        return (*cls.starts, *cls.ends, *cls.wrappers, *cls.inner_marks)

    @classmethod
    def end_of_thought(cls) -> str:
        """What the model writes to end the reasoning."""
        return cls.closing.strip().removesuffix(cls.before_answer)

    @classmethod
    def answer(cls, constraint: Constraint, *, is_calls: bool) -> Constraint:
        """The constraint with what the model writes between the reasoning and the answer."""
        if not cls.before_answer or (is_calls and not cls.is_before_calls):
            return constraint
        both = sequence(const_string(cls.before_answer), format_of(constraint))
        return structural_tag(both, constraint.field)

    @classmethod
    def in_reasoning(cls, constraint: Constraint) -> Constraint:
        """The rest of a reasoning that the prompt has begun, then what the constraint allows."""
        return cls._after(tag("", _ANY_TEXT, cls.end_of_thought()), constraint)

    @classmethod
    def before_reasoning(cls, constraint: Constraint) -> Constraint:
        """A reasoning, which the model may leave out, then what the constraint allows."""
        thought = tag(cls.starts[0], _ANY_TEXT, cls.end_of_thought())
        return cls._after(thought, constraint, is_optional=True)

    @staticmethod
    def _after(thought: Format, constraint: Constraint, *, is_optional: bool = False) -> Constraint:
        opening = sequence(thought, _GAP)
        opening = optional(opening) if is_optional else opening
        return structural_tag(sequence(opening, format_of(constraint)), constraint.field)

    @classmethod
    def opens_in(cls, prompt_tail: str) -> bool:
        """Whether a prompt with this end has opened the reasoning."""
        return prompt_tail.rstrip().endswith(cls.starts)

    @classmethod
    def is_left_out(cls, prompt: str, usual: str) -> bool:
        """Whether the prompt neither opens nor ends the thought that `usual` opens, which is the
        prompt of a user's message.
        """
        ends = (*cls.starts, *cls.ends, *cls.wrappers)
        return cls.opens_in(usual) and not prompt.rstrip().endswith(ends)

    @classmethod
    def tags(cls) -> tuple[str, ...]:
        """The ends that are no words of a language."""
        return tuple(end for end in cls.ends if not end[0].isalpha())

    @classmethod
    def behind(
        cls,
        prompt: str,
        begun: str = "",
        *,
        may_be_inside: bool = False,
        tool_starts: Sequence[str] = (),
    ) -> Self:
        """A parser for what follows the prompt. `begun`: the answer's first words, if the prompt
        ends with them.
        """
        before = prompt.removesuffix(begun.lstrip())
        is_inside = cls.opens_in(before)
        parser = cls(is_inside=is_inside, may_be_inside=may_be_inside, tool_starts=tool_starts)
        parser.push(begun.rstrip())
        parser._reader.rest()  # a partial mark: the caller has it already
        parser._held.clear()
        return parser

    @property
    def pending(self) -> int:
        """How many characters were pushed that are neither reasoning nor text yet."""
        return self._reader.pending

    def continued(self, text: str) -> list[ReasoningEvent]:
        """More text of the thought that the answer ended in."""
        self._emit_reasoning(text)
        return self._events.take()

    def _keep(self, text: str) -> None:
        self._held.append(text)
        self.on_held(text)
        self.thought_code.read(text)

    def _hold(self, ends: tuple[str, ...], own_end: str = "") -> Steps[str]:
        """Holds back the thought from here on. Returns its end, "" where the answer ends, or where
        enough was held. own_end: the one that closes a call, too, where the answer ends with both.
        """
        mark = yield from self._reader.until(delimiters(ends), self._keep, most=MOST_HELD)
        is_whole = mark == own_end and "".join(self._held).rstrip().endswith("}")
        if mark and is_whole and (yield from self._reader.follows(len(mark), ())) == "":
            self._keep(self._reader.rest())
            mark = ""
        held = "".join(self._held)
        self._held.clear()
        if mark or not self._reader.may_end_in(""):
            self.on_held("")
            self._emit_reasoning(held)
        else:
            self.draft = held
            self._events.delta("text", TextDelta, held)
        return mark

    def _emit_text(self, text: str) -> None:
        self._events.delta("text", TextDelta, text)

    def _emit_first(self, text: str) -> None:
        """Emits text in which code counts, since its marks would mean something outside it."""
        self._code.read(text)
        self._emit_text(text)

    def _begin_reasoning(self) -> None:
        self._stripped = Stripped(partial(self._events.delta, "thought", ReasoningDelta))
        self.thought_code = CodeSpans()  # of the thought before what is held

    def _think(self, text: str) -> None:
        self.thought_code.read(text)
        self._emit_reasoning(text)

    def _emit_reasoning(self, text: str) -> None:
        """Emits reasoning without the white space at its begin and its end."""
        self._stripped(text)


def _ignore(text: str) -> None:
    """Where no calls are read."""


class TaggedReasoning(ReasoningParser):
    """Reasoning between a start and an end tag, before the text."""

    # Both tags, around `…`: starts, ends and closing follow from it, where a family has one pair.
    form: ClassVar[str]
    # Whether the tags count in the middle of the text, too: they do where they are special tokens.
    is_anywhere: ClassVar[bool] = False
    # A word behind the start tag, which belongs to it.
    label: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if "form" in vars(cls):
            start, end = cls.form.split("…")
            cls.starts, cls.ends = (start,), (end,)
            cls.closing = f"{end}{cls.before_answer}"

    def _parse(self) -> Steps[None]:
        is_inside = self._is_inside or (yield from self._opens())
        if not is_inside:
            yield from self._lost_end()
        anywhere = self.starts + self.tags() if self.is_anywhere else ()
        marks = delimiters((*anywhere, *self.wrappers))
        while True:
            while is_inside:
                yield from self._reasoning()
                is_inside = self.may_think_again and (yield from self._accepts(self.starts))
            mark = yield from self._reader.until(marks, self._emit_text)
            if not mark:
                return
            self._reader.take(len(mark))
            is_inside = mark in self.starts

    def _opens(self) -> Steps[bool]:
        gap = yield from self._reader.space()
        is_thought = yield from self._accepts(self.starts)
        if not is_thought and (yield from self._accepts(self.tags())):
            yield from self._reader.space()
        elif not is_thought and not (self.is_undecided and (yield from self._unopened())):
            self._emit_text(gap)
        self.is_undecided = False
        return is_thought

    def _unopened(self) -> Steps[bool]:
        """Reads a thought that nothing opened: it ends soon, with a tag that is not quoted."""
        ends = self.tags() + (self.starts if self.is_anywhere else ())
        either = f"(?:{'|'.join(map(re.escape, ends))})"
        unquoted = re.compile(f"(?<!`){either}|{either}(?=[^`])")
        found = yield from self._reader.find(unquoted, MOST_UNDECIDED)
        if found is None or found.group() in self.starts:
            return False
        self.is_undecided = False
        self._begin_reasoning()
        self._emit_reasoning(self._reader.take(found.start()))
        yield from self._end_reasoning()
        return True

    def _lost_end(self) -> Steps[None]:
        """Reads up to a mark that is text no more. An end tag before any call has lost its start:
        the thought before it was sent as text, so the tag alone is dropped.
        """
        others = (*(self.starts if self.is_anywhere else ()), *self.wrappers, *self._tool_starts)
        marks = delimiters((*self.tags(), *others))
        while mark := (yield from self._reader.until(marks, self._emit_first)):
            if code := (yield from self._code.quotation(self._reader)):
                self._emit_first(code)
            elif mark in self.tags():
                self._reader.take(len(mark))
            else:
                return

    def _accepts(self, marks: tuple[str, ...]) -> Steps[bool]:
        for mark in marks:
            if (yield from self._reader.accept(mark)):
                return True
        return False

    def _reasoning(self) -> Steps[None]:
        """Reads up to the end tag and the white space behind it."""
        self.is_thinking = True
        yield from self._reader.space()
        yield from self._accepts(self.starts)  # some models repeat the tag of the prompt
        if self.label:
            yield from self._reader.accept(self.label)
        yield from self._reader.space()
        self._begin_reasoning()
        marks = delimiters((*self.ends, *self._tool_starts))
        mark = yield from self._reader.until(marks, self._think)
        while mark in self._tool_starts or (mark and (yield from self._is_quoted(mark))):
            if mark in self._tool_starts:
                mark = yield from self._hold(self.ends)
            else:
                self._think(self._reader.take(len(mark)))
                mark = ""
            mark = mark or (yield from self._reader.until(marks, self._think))
        self.is_thinking = False
        yield from self._end_reasoning()

    def _is_quoted(self, mark: str) -> Steps[bool]:
        """Whether backticks stand directly around the mark."""
        if not self.thought_code.is_behind_backtick:
            return False
        return (yield from self._reader.look(len(mark) + 1)).endswith("`")

    def _end_reasoning(self) -> Steps[None]:
        while (yield from self._accepts(self.ends)):  # some models repeat it
            yield from self._reader.space()


class Gemma4Parser(TaggedReasoning):
    """Gemma 4: a channel, whose name is not part of the reasoning."""

    form = "<|channel>…<channel|>"
    label = "thought\n"
    is_anywhere = True
    template_marks = (("<|channel>", "thought"),)

    @classmethod
    def opens_in(cls, prompt_tail: str) -> bool:
        return super().opens_in(prompt_tail.rstrip().removesuffix("thought"))


COHERE_WRAPPERS = (
    *("<|START_RESPONSE|>", "<|END_RESPONSE|>"),  # Command R7B and A
    *("<|START_TEXT|>", "<|END_TEXT|>"),  # from Command A Reasoning on
)


class CohereParser(TaggedReasoning):
    """Cohere: special tokens, and the text is between marks of its own."""

    form = "<|START_THINKING|>…<|END_THINKING|>"
    wrappers = COHERE_WRAPPERS
    is_anywhere = True


class KimiK3Parser(TaggedReasoning):
    """Kimi K3: the channel `think`, before the channels `response` and `tools`.

    The prompt ends with the start of `think`, or of `response` if the model is not to think.
    """

    form = "<|open|>think<|sep|>…<|close|>think<|sep|>"
    before_answer = "<|open|>response<|sep|>"
    is_before_calls = True
    wrappers = (before_answer, "<|close|>response<|sep|>", "<|close|>message<|sep|>")
    template_marks = (("<|open|>", "<|sep|>", "think"),)


class MiniMaxM3Parser(TaggedReasoning):
    """MiniMax M3. A model that chooses not to think writes the end tag alone."""

    form = "<mm:think>…</mm:think>"
    wrappers = ("</mm:think>",)
    template_marks = (("<mm:think>",), ("</mm:think>",))


class GraniteParser(TaggedReasoning):
    """Granite 3.2: "Here is my thought process: … Here is my response: …"; 3.3 has tags.

    Also accepts "Here's", which small or quantized models write.
    """

    starts = ("Here is my thought process:", "Here's my thought process:", "<think>")
    closing = "\nHere is my response:\n"
    ends = ("Here is my response:", "Here's my response:", "</think>")
    template_marks = (("Here is my thought process",),)

    @classmethod
    def opens_in(cls, prompt_tail: str) -> bool:
        return prompt_tail.rstrip().endswith("<think>")


class MistralParser(TaggedReasoning):
    """Magistral: special tokens."""

    form = "[THINK]…[/THINK]"
    is_anywhere = True


class ThinkParser(TaggedReasoning):
    """DeepSeek R1, Qwen 3, GLM 4.5, Kimi, Nemotron, MiniMax: `<think>…</think>` before the answer.

    Only at the start: a `<think>` in the answer is text. Kimi-VL has triangles as brackets.
    """

    starts = ("<think>", "◁think▷")
    ends = ("</think>", "◁/think▷")
    closing = "\n</think>\n\n"
    template_marks = (("<think>",), ("</think>",))


class SeedOssParser(TaggedReasoning):
    """Seed-OSS."""

    form = "<seed:think>…</seed:think>"


class Hy3Parser(TaggedReasoning):
    """Hy3."""

    form = "<think:opensource>…</think:opensource>"
    template_marks = (("<think{}>", "</think{}>"), ("<think:opensource>",))


class ApertusParser(TaggedReasoning):
    """Apertus: special tokens."""

    form = "<|inner_prefix|>…<|inner_suffix|>"
    is_anywhere = True
    template_marks = (("<|inner_prefix|>", "<|inner_suffix|>"),)


SOLAR_WRAPPERS = ("<|begin|>assistant", "<|content|>", "<|end|>")


class SolarOpenParser(TaggedReasoning):
    """Solar Open: the answer is a message of its own."""

    form = "<|think|>…<|end|>"
    before_answer = "<|begin|>assistant"
    is_before_calls = True
    wrappers = SOLAR_WRAPPERS
    template_marks = (("<|think|>", "<|begin|>assistant"),)


_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_HEADS = ("<|start|>", "<|channel|>")
_HEAD_MARKS = Delimiters([_MESSAGE, "<|start|>", *_ENDS])
_LONGEST_HEAD = 256
# What a broken header has in front of text: a role, a channel's name however it is spelt, …
_BROKEN_HEAD = re.compile(
    r"(?:<\|start\|>\w*)?\s*(?:<\|channel\|>\s*\S*)?\s*(?:(?:to=|<\|constrain\|>)\S*\s*)*"
)
# What ends an open thought that has a draft.
_DRAFT_ENDS = (
    *("<|end|>", "<|return|>"),
    *(
        f"{start}<|channel|>{channel}{_MESSAGE}"
        for start in ("", "<|start|>assistant")
        for channel in ("analysis", "commentary", "final")
    ),
)


class HarmonyParser(ReasoningParser):
    """gpt-oss: the channel `analysis` is reasoning, `final` and preambles are text.

    Each message has a header and a body. Calls, whose header names a recipient, pass unchanged
    to the tool parser if there is one. Of a header without a body only the text behind it is kept.
    """

    starts = ("<|channel|>analysis<|message|>",)
    ends = _ENDS
    before_answer = "<|channel|>final<|message|>"
    closing = f"<|end|><|start|>assistant{before_answer}"
    inner_marks = _HEADS
    template_marks = (("<|channel|>", "analysis"),)
    _is_in_body = False

    def _parse(self) -> Steps[None]:
        if self._is_inside:
            yield from self._reasoning()
        elif (yield from self._reader.look(4)) == " to=":
            yield from self._message("")
        marks = delimiters((*_HEADS, *_ENDS))
        while mark := (yield from self._reader.until(marks, self._emit_first)):
            if code := (yield from self._code.quotation(self._reader)):
                self._emit_first(code)
            elif mark in _ENDS:
                self._reader.take(len(mark))
                self._is_in_body = False
            else:
                yield from self._message(mark)

    def _message(self, start: str) -> Steps[None]:
        head, has_body = yield from self._head(start)
        if has_body:
            yield from self._body(head)
        elif self._is_call(head):
            self._emit_text(head)
        elif self._is_in_body:
            self._emit_first(head.replace(start, ""))
        else:
            self._emit_first(_BROKEN_HEAD.sub("", head, count=1))

    def _head(self, start: str) -> Steps[tuple[str, bool]]:
        """Takes a header. Returns it, and whether a body follows."""
        parts = [start]
        yield from self._reader.accept(start)
        mark = yield from self._reader.until(_HEAD_MARKS, parts.append, most=_LONGEST_HEAD)
        if mark == _MESSAGE:
            parts.append(self._reader.take(len(mark)))
        return "".join(parts), mark == _MESSAGE

    def _is_call(self, head: str) -> bool:
        return "to=" in head and bool(self._tool_starts)

    def _body(self, head: str) -> Steps[None]:
        self._is_in_body = False
        if self._is_call(head):
            self._emit_text(head)
            mark = yield from self._reader.until(delimiters((*_HEADS, *_ENDS)), self._emit_text)
            if mark in _ENDS:
                self._emit_text(self._reader.take(len(mark)))
        elif "analysis" in head:
            yield from self._reasoning()

    def _emit_first(self, text: str) -> None:
        self._is_in_body = self._is_in_body or not text.isspace()
        super()._emit_first(text)

    def _reasoning(self) -> Steps[None]:
        head = "analysis"
        while "analysis" in head and not self._is_call(head):
            self.is_thinking = True
            self._begin_reasoning()
            head = yield from self._thought()
            self.is_thinking = False
        if head:
            yield from self._body(head)

    def _thought(self) -> Steps[str]:
        """Reads up to the end of the message, or to the body of another: returns that one's header.
        The header of a call begins a draft; one without a body is a part of the thought.
        """
        marks = delimiters((*_HEADS, *_ENDS, *self._tool_starts))
        while mark := (yield from self._reader.until(marks, self._think)):
            if mark in _ENDS:
                self._reader.take(len(mark))
                break
            if mark in _HEADS:
                head, has_body = yield from self._head(mark)
                if has_body and not self._is_call(head):
                    return head
                if not has_body:
                    self._think("" if self._reader.may_end_in("") else head)
                    continue
                self._keep(head)
            yield from self._hold(_DRAFT_ENDS, own_end="<|end|>")
        return ""


class MuseGlimmerParser(TaggedReasoning):
    """Muse Glimmer: messages with recipients, ` to=self<|message|>…<|eom|><|start|>assistant to=…`.

    A message to itself is reasoning. The prompt ends before the first recipient. Other headers are
    dropped: calls have marks of their own.
    """

    starts = (" to=self<|message|>",)
    ends = ("<|eom|>", "<|eot|>")
    before_answer = " to=user<|message|>"
    closing = f"<|eom|><|start|>assistant{before_answer}"
    inner_marks = ("<|start|>", _MESSAGE)
    template_marks = (("to=self<|message|>", "<|eom|>"),)

    def _parse(self) -> Steps[None]:
        is_thought = self._is_inside
        if not is_thought and (yield from self._reader.look(4)) == " to=":
            is_thought = yield from self._header("")
        marks = delimiters(("<|start|>", *self.ends))
        while True:
            if is_thought:
                yield from self._reasoning()
                is_thought = False
            mark = yield from self._reader.until(marks, self._emit_first)
            if not mark:
                return
            if code := (yield from self._code.quotation(self._reader)):
                self._emit_first(code)
                continue
            self._reader.take(len(mark))
            if mark == "<|start|>":
                is_thought = yield from self._header(mark)

    def _header(self, start: str) -> Steps[bool]:
        """Whether it begins a message to the model itself. A broken one is dropped, too."""
        head = [start]
        ends = delimiters((_MESSAGE, "<|start|>", *self.ends))
        mark = yield from self._reader.until(ends, head.append, most=_LONGEST_HEAD)
        if mark == _MESSAGE:
            self._reader.take(len(mark))
        else:
            self._emit_first(_BROKEN_HEAD.sub("", "".join(head), count=1))
        return mark == _MESSAGE and "".join(head).split()[-1:] == ["to=self"]
