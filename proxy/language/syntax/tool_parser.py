"""The bases of tool-call parsers: text, calls, and the handling of broken calls.

A parser's class is its family. SectionCalls have marks around each call, BareCalls none; JSON
objects are in `json_calls`, XML-like elements in `element_calls`.
"""

from __future__ import annotations

import json
import re
import secrets
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import Self

from proxy.domain.events import TextDelta, ToolCallArguments, ToolCallStarted, ToolEvent
from proxy.language.syntax.call_syntax import CallSyntax
from proxy.language.syntax.code_spans import CodeSpans
from proxy.language.syntax.literal import Broken, CutOff, Literal
from proxy.language.syntax.reader import PushParser, Steps, delimiters

# name of a tool -> JSON Schema of its arguments
Tools = Mapping[str, Mapping[str, Any]]
TemplateMarks = tuple[tuple[str, ...], ...]
NAME = re.compile(r"[\w.\-/]*")
_CLOSING, _MOST_CLOSING = re.compile(r"[}\]]*"), 4
_BRACKETS = "<[]"  # what each mark begins with that is not a word or a fence


class ToolParser(PushParser[ToolEvent]):
    """`push` text, `flush` at the end; the events are the same however the text was cut.

    A call starts (ToolCallStarted) when its name and the begin of its arguments are certain. If it
    breaks before, it is text. If it breaks later, its arguments are closed to valid JSON, and the
    rest is text. What is inside code is text; other text never contains `control_marks`. White
    space between calls belongs to the syntax, and so does an answer's first white space if a call
    follows it. `calls` counts the calls that have started.

    Args:
        tools: schemas of the request's tools, by name; they type the values of XML-like families.
            A call without a delimiter of its own must name one of these tools.
        only_known: a call to any other tool is text.
    """

    # (start, end) around one call or several; the end is "" where the calls end by themselves.
    sections: ClassVar[tuple[tuple[str, str], ...]] = ()
    starts: ClassVar[tuple[str, ...]] = ()  # marks that open a call or a section
    weak_starts: ClassVar[tuple[str, ...]] = ()  # those that occur in text, too
    # Further marks of the syntax, in case they are special tokens.
    inner_marks: ClassVar[tuple[str, ...]] = ()
    # Special tokens that marks consist of. Since they begin messages, too, callers' stay text.
    fragments: ClassVar[tuple[str, ...]] = ()
    # Marks that XML of another kind has, too: text until a call has begun.
    plain_marks: ClassVar[tuple[str, ...]] = ()
    openings: ClassVar[str] = ""  # the characters that a call without a mark begins with
    # What guides write; None where no guide can hold a model to the family's calls.
    call_syntax: ClassVar[CallSyntax | None] = None
    # Alternatives: a chat template that contains all marks of one of them belongs to the family.
    # None for its first start alone.
    template_marks: ClassVar[TemplateMarks | None] = None
    # What models write in place of the family's own calls: start -> what then comes -> its family.
    other_bodies: ClassVar[Mapping[str, Mapping[str, type[ToolParser]]]] = {}
    # Whether the call has no delimiter of its own.
    _is_bare = False

    def __init__(self, tools: Tools | None = None, *, only_known: bool = False) -> None:
        super().__init__()
        self._tools: Tools = tools or {}
        self._only_known = only_known
        self._blank: list[str] | None = []
        self._unsent = ""  # the end of the text, which may begin a mark
        self._code = CodeSpans()
        self._is_other = False
        self._own_marks: tuple[str, ...] = ()
        self.strays: tuple[str, ...] = ()  # marks of a thought's end, which no call is followed by
        self._drop(self.control_marks(are_plain_text=True))
        self._has_ended = False
        self.calls = 0
        self.is_cut = False
        self._reset_call()

    def _reset_call(self) -> None:
        self._name = ""
        self._has_started = False
        self._is_open = False
        self._argument_count = 0
        self._written: set[str] = set()  # the keys of the call so far

    def another(self, code: CodeSpans) -> Self:
        """A parser of the same calls, behind text with this code."""
        other = type(self)(self._tools, only_known=self._only_known)
        other.strays, other._code = self.strays, code
        return other

    @staticmethod
    def new_id(name: str, index: int) -> str:
        """The id of a call: `call_` and 24 hexadecimal digits. A template may need another form."""
        return f"call_{secrets.token_hex(12)}"

    @classmethod
    def marks(cls) -> tuple[str, ...]:
        """All marks of the syntax: special tokens among them must reach the parser as text."""
        ends = tuple(end for _, end in cls.sections if end)
        return (*cls.starts, *ends, *cls.inner_marks)

    @classmethod
    def control_marks(cls, *, are_plain_text: bool = False) -> tuple[str, ...]:
        """The marks that text for the client never contains. are_plain_text: `plain_marks` are."""
        text = {*cls.weak_starts, *(cls.plain_marks if are_plain_text else ())}
        marks = (*cls.marks(), *cls.fragments)
        return tuple(mark for mark in marks if mark[0] in _BRACKETS and mark not in text)

    @classmethod
    def clear_starts(cls) -> tuple[str, ...]:
        """The starts that end a reasoning which the model left open."""
        return tuple(start for start in cls.starts if start not in cls.weak_starts)

    def flush(self, *, has_ended: bool = False) -> list[ToolEvent]:
        """The last events. A call that the end cuts off stays incomplete; `is_cut` becomes true.

        has_ended: the model ended its answer itself, by a token that has no text. Then a call that
        lacks nothing but closing marks is closed.
        """
        self._has_ended, self._code.is_cut = has_ended, not has_ended
        events = super().flush()
        self._send_text(self._dropped.removed_from(self._unsent))
        events += self._events.take()
        if self._blank and not self.calls:
            events.append(TextDelta("".join(self._blank)))
        self._blank = None
        return events

    def _parse(self) -> Steps[None]:
        """The grammar of a whole answer."""
        while mark := (yield from self._reader.until(self._text_marks, self._emit_unmarked)):
            yield from self._at_mark(mark)

    def _at_mark(self, mark: str) -> Steps[None]:
        """Reads on from a mark in the text. Inside code, it is text."""
        if mark in self.weak_starts and self._code.is_fenced:
            self._emit_code(self._reader.take(len(mark)))
        elif code := (yield from self._code.quotation(self._reader)):
            self._emit_code(code)
        elif mark in self.starts:
            yield from self._any_section(mark)
        else:
            self._reader.take(len(mark))

    def _any_section(self, start: str) -> Steps[None]:
        """A section with calls of this family, or of another one: those must name a known tool."""
        bodies = self.other_bodies.get(start, {})
        found = (yield from self._reader.follows(len(start), tuple(bodies))) if bodies else None
        if not found:
            yield from self._section(start)
            return
        own, self._is_other, self._own_marks = type(self), True, self.control_marks()
        self.__class__ = bodies[found]  # the same answer, read by the rules of another family
        yield from self._section(start)
        self.__class__ = own
        self._is_other, self._own_marks = False, ()
        self._drop(self.control_marks())

    def _section(self, start: str) -> Steps[None]:
        more = yield from self._attempt(self._first(start))
        while more:
            more = yield from self._attempt(self._next(start))

    @abstractmethod
    def _first(self, start: str) -> Steps[bool]:
        """From `start` to the end of the first call."""

    @abstractmethod
    def _next(self, start: str) -> Steps[bool]:
        """From the end of a call to the end of the next, or of the section: then False."""

    def _attempt(self, call: Steps[bool]) -> Steps[bool]:
        """Reads one call with the marks before it.

        Returns:
            The result of `call`: whether another call may follow directly.
        """
        self._reset_call()
        self._reader.record()
        if not self._is_bare:
            self._drop(self.control_marks())
        try:
            return (yield from call)
        except Broken as error:
            if self._is_open and self._argument_count:
                self._emit_arguments("}")
            self._is_open = False
            text = self._reader.recorded() or error.lost
            if self._is_bare:  # not the remains of what marks began
                self._code.read(text)
            self._emit_text(text)
        except CutOff as error:
            self._cut_off(error.closing)
        finally:
            self._reader.recorded()
        return False

    def _cut_off(self, closing: str | None) -> None:
        """closing: as CutOff's."""
        if not self._has_started and not self._may_start:
            self._emit_text(self._reader.recorded())
            return
        self._reader.rest()  # the begin of a mark
        if self._has_ended and closing is not None and not self._has_started:
            self._close_arguments()
        elif self._has_ended and closing is not None and self._is_open:
            self._emit_arguments(closing + "}" * bool(self._argument_count))
            self._end_call()
        self._start_call()
        self.is_cut = self._is_open

    def _expect(self, mark: str, *others: str) -> Steps[None]:
        """Takes `mark`.

        Raises:
            Broken: something else comes.
            CutOff: the text ended where it, or one of the others, could have followed.
        """
        if not (yield from self._reader.accept(mark)):
            is_cut = any(map(self._reader.may_end_in, (mark, *others)))
            raise CutOff if is_cut else Broken

    def _whole_name(self) -> Steps[str]:
        """The name that comes next, "" for none; a character behind it must be there."""
        name = yield from self._reader.word(NAME)
        if not (yield from self._reader.peek()):
            raise CutOff
        return name

    def _comma(self, close: str) -> Steps[None]:
        """A comma and the white space around it, or the white space before `close`."""
        yield from self._reader.space()
        if (yield from self._reader.accept(",")):
            yield from self._reader.space()
            return
        char = yield from self._reader.peek()
        if not char:
            raise CutOff("")
        if char != close:
            raise Broken

    def _json_arguments(self, *ends: str) -> Steps[None]:
        """Streams arguments that are a JSON object; one of `ends` instead means no arguments."""
        char = yield from self._reader.peek()
        if char == "{":
            self._start_call()
            yield from Literal(self._reader, self._emit_arguments).read()
            self._end_call()
            return
        for end in ends:
            if (yield from self._reader.look(len(end))) == end:
                self._close_arguments()
                return
        is_cut = not char or any(map(self._reader.may_end_in, ends))
        raise CutOff("") if is_cut else Broken

    def _has_bare_object(self) -> Steps[bool]:
        """Whether a JSON object comes where a known tool's elements should."""
        is_known = not self._tools or self._name in self._tools
        return is_known and (yield from self._reader.peek()) == "{"

    def _end_of_name(self, mark: str, is_known: bool) -> Steps[None]:
        """Takes the mark behind a name; behind a known one, a part of it, or a line break, does."""
        if not is_known or len(mark) > 2:
            yield from self._expect(mark)
        elif not (yield from self._reader.accept(mark)):
            if self._reader.may_end_in(mark):
                raise CutOff
            found = False
            for char in (*mark, "\n"):
                found = (yield from self._reader.accept(char)) or found
            if not found:
                raise Broken

    def _end(self, mark: str, gap: str = "") -> Steps[None]:
        """Takes white space and `mark`; without the mark, the white space is text. Brackets too
        many before the mark, or before the end of the text, are dropped.
        """
        gap += yield from self._reader.space()
        if brackets := (yield from self._reader.ahead(0, _CLOSING, _MOST_CLOSING)):
            found = yield from self._reader.follows(len(brackets), (mark,) if mark else ())
            if found is not None:
                self._reader.take(len(brackets))
                gap = yield from self._reader.space()
        if not mark or not (yield from self._reader.accept_end(mark)):
            self._emit_text(gap)

    @property
    def is_open(self) -> bool:
        """Whether the model is writing the arguments of a call."""
        return self._is_open

    @property
    def _may_start(self) -> bool:
        is_free = not (self._only_known or self._is_other) or not self._tools
        is_known = is_free or self._name in self._tools
        return bool(self._name) and is_known

    def _start_call(self) -> None:
        """Starts the call to `_name`, if it has not started yet.

        Raises:
            Broken: there is no name, or no tool that has it.
        """
        if self._has_started:
            return
        if not self._may_start:
            raise Broken
        self._has_started = self._is_open = True
        self._reader.recorded()
        self._send_text(self._dropped.removed_from(self._unsent))
        self._unsent, self._blank, self._code = "", [], CodeSpans()
        index, self.calls = self.calls, self.calls + 1
        self._events.event(ToolCallStarted(index=index, id=self._id(index), name=self._name))

    def _id(self, index: int) -> str:
        return self.new_id(self._name, index)

    def _emit_arguments(self, fragment: str) -> None:
        index = self.calls - 1
        self._events.delta(
            index, lambda text: ToolCallArguments(index=index, fragment=text), fragment
        )

    def _end_call(self) -> None:
        """The arguments are complete. Text taken from here on is emitted if the call breaks."""
        self._is_open = False
        self._reader.record()

    def _begin_argument(self, key: str) -> None:
        """Begins an argument, for families that do not write JSON; its value comes next."""
        self._start_call()
        self._reader.recorded()
        opening = ", " if self._argument_count else "{"
        self._emit_arguments(f"{opening}{json.dumps(key, ensure_ascii=False)}: ")
        self._argument_count += 1
        self._written.add(key)

    def _end_argument(self) -> None:
        """The value is complete. Text taken from here on is emitted if the call breaks."""
        self._reader.record()

    @property
    def _properties(self) -> Mapping[str, Any]:
        """The schemas of the tool's arguments, as far as they are listed."""
        listed = self._tools.get(self._name, {}).get("properties")
        return listed if isinstance(listed, Mapping) else {}

    def _is_next_key(self, key: str) -> bool:
        """Whether the key can be the call's next: listed, if any are, and not yet written."""
        return key not in self._written and (not self._properties or key in self._properties)

    def _close_arguments(self) -> None:
        self._start_call()
        self._emit_arguments("}" if self._argument_count else "{}")
        self._end_call()

    def _drop(self, marks: tuple[str, ...]) -> None:
        """Text is without these marks from here on."""
        marks = (*marks, *self._own_marks, *self.strays)
        self._dropped = delimiters(marks)
        self._text_marks = delimiters((*self.starts, *marks, *self.openings))

    def _emit_text(self, text: str) -> None:
        """Emits text without marks; what may begin one waits for more."""
        text = self._unsent + text
        end = len(text) - self._dropped.possible_start(text, 0)
        self._unsent = text[end:]
        self._send_text(self._dropped.removed_from(text[:end]))

    def _emit_unmarked(self, text: str) -> None:
        """Emits text that has no marks of its own."""
        self._code.read(text)
        if self._unsent:
            self._emit_text(text)
        else:
            self._send_text(text)

    def _emit_code(self, text: str) -> None:
        """Emits text with its marks."""
        self._code.read(text)
        self._send_text(self._dropped.removed_from(self._unsent) + text)
        self._unsent = ""

    def _send_text(self, text: str) -> None:
        """Emits text for the client; blank text waits until a call or more text follows it."""
        if self._blank is not None:
            self._blank.append(text)
            if not text or text.isspace():
                return
            text, self._blank = "".join(self._blank), None
        self._events.delta("text", TextDelta, text)


class SectionCalls(ToolParser):
    """Section begin, call begin, the call, call begin, …, section end; the section may be missing.

    A family implements `_call`, which reads from behind the call's begin to behind its end.
    """

    call_begin: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.starts = (*(start for start, _ in cls.sections), cls.call_begin)

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        if start != self.call_begin:
            yield from self._reader.space()
            yield from self._expect(self.call_begin)
        yield from self._call()
        return True

    def _next(self, start: str) -> Steps[bool]:
        gap = yield from self._reader.space()
        if (yield from self._reader.accept(self.call_begin)):
            yield from self._call()
            return True
        ends = dict(self.sections)
        forgotten = next(iter(ends.values()), "")  # some models write the end without the begin
        yield from self._end(ends.get(start, forgotten), gap)
        return False

    @abstractmethod
    def _call(self) -> Steps[None]:
        """One call with its end."""


_BLANKS = re.compile(r"\s+(?=\s)")
# Text before a bracket that belongs to something else: to code, to a quotation, or to JSON, where
# it follows a bracket, a comma behind a value, or the colon behind a key. A new line ends all.
_INSIDE = re.compile(
    r"""(?:[A-Za-z0-9_"'`)\]\\]|(?:[(\[{=]|["'}\]0-9][^\S\n]?,|["'][^\S\n]?:)[^\S\n]?)\Z"""
)
_SEEN_BEFORE = 4  # characters that _INSIDE looks at


class BareCalls(ToolParser):
    """A bare call must name a known tool, and turns into text as soon as it breaks."""

    openings = "{["
    weak_starts: ClassVar[tuple[str, ...]] = ("",)
    # The end of the text so far, with each run of white space shortened to its last character.
    _before = ""

    def _at_mark(self, mark: str) -> Steps[None]:
        if mark not in self.openings:
            yield from super()._at_mark(mark)
        elif _INSIDE.search(self._before) or self._code.is_fenced:
            self._emit_unmarked(self._reader.take(1))
        elif code := (yield from self._code.quotation(self._reader)):
            self._emit_code(code)
        else:
            yield from self._any_section("")

    @property
    def _may_start(self) -> bool:
        is_known = not self._is_bare or not self._tools or self._name in self._tools
        return is_known and super()._may_start

    def _section(self, start: str) -> Steps[None]:
        self._is_bare = start in self.weak_starts
        yield from super()._section(start)

    def _send_text(self, text: str) -> None:
        self._before = _BLANKS.sub("", self._before + text)[-_SEEN_BEFORE:]
        super()._send_text(text)
