"""Where a value without quotes ends: at the closing mark behind which the call continues or ends.

A value may hold such marks (a file about tool calls), and a model may misspell or forget its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from proxy.language.syntax.literal import CutOff
from proxy.language.syntax.reader import SPACE, PassOn, Reader, Steps, delimiters

_KEY = re.compile(r"[^<>\"'\n]*")
_MISSPELT = re.compile(r"[\w\-/.| ]*")
_MOST_IN_KEY, _MOST_MISSPELT = 128, 16
_MOST_HELD = 8_192  # characters behind a closing mark after which the call does not continue


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueMarks:
    """end: closes a value. key_begin, key_end: around the next key. after: what else may follow a
    value. call_ends: with what may follow each; they end a value that is not closed, and a line
    break before them, too. begins: of other calls. has_lines: a line break before `end` belongs to
    it. any_end: around the word of a closing mark, where a wrong one ends the value, too.
    """

    end: str
    key_begin: str
    key_end: str
    after: tuple[str, ...]
    call_ends: tuple[tuple[str, tuple[str, ...]], ...]
    begins: tuple[str, ...]
    has_lines: bool = False
    any_end: tuple[str, str] = ("", "")
    gap: re.Pattern[str] = SPACE

    @property
    def stem(self) -> str:
        """What every closing mark of a value begins with, also a shortened or misspelt one."""
        return self.end[:-1].removesuffix("eter")

    @property
    def all(self) -> tuple[str, ...]:
        calls = (one for one, _ in self.call_ends)
        end, others = self.stem, (self.key_begin, self.any_end[0], *calls)
        lines = (end, *others) if self.has_lines else others
        return (end, *others, *(f"\n{one}" for one in lines if one))


class BareValue:
    """Reads one value. is_next: whether a key can be the call's next: the tool has it, and the call
    does not yet; `<parameter=x>` in a value is text otherwise.
    """

    def __init__(self, reader: Reader, marks: ValueMarks, is_next: Callable[[str], bool]) -> None:
        self._reader = reader
        self._marks = marks
        self._is_next = is_next
        self._is_nested = False  # the value holds the begin of an element
        self._held: list[str] | None = None
        self._length = 0

    def read(self, pass_on: PassOn) -> Steps[str]:
        """Takes the value and its closing mark.

        Returns:
            What the model wrote behind the closing mark and before the next mark of the call, if
            that is not part of the value: text.
        """

        def keep(text: str) -> None:
            if self._held is None:
                pass_on(text)
                return
            self._held.append(text)
            self._length += len(text)
            if self._length > _MOST_HELD:
                self._release(pass_on)

        marks = delimiters(self._marks.all)
        while mark := (yield from self._reader.until(marks, keep, leaves_partial=True)):
            length, is_closed = yield from self._end(mark)
            if length is None:
                if is_closed and self._held is None:
                    self._held, self._length = [], 0
                keep(self._reader.take(1 if mark.startswith("\n") else len(mark)))
                continue
            if is_closed or self._held is None:
                self._release(pass_on)
                self._reader.take(length)
                return ""
            return "".join(self._held)
        self._release(pass_on)
        raise CutOff

    def _release(self, pass_on: PassOn) -> None:
        held, self._held = self._held or [], None
        if held:
            pass_on("".join(held))

    def _end(self, mark: str) -> Steps[tuple[int | None, bool]]:
        """How much of the text to take if the value ends here, else None; whether the mark is a
        correct closing mark.
        """
        marks, reader, length = self._marks, self._reader, len(mark)
        bare = mark.removeprefix("\n")
        if bare == marks.key_begin:
            key = yield from reader.ahead(length, _KEY, _MOST_IN_KEY)
            length += len(key)
            last = (yield from reader.look(length + len(marks.key_end)))[length:]
            if last != marks.key_end and reader.ends_at(length + len(last)):
                raise CutOff
            is_key = last == marks.key_end and self._is_next(key.strip())
            is_key = is_key and (mark != bare or not marks.has_lines)
            self._is_nested |= not is_key and not key.startswith("/")
            return (0 if is_key else None), False
        if bare == marks.any_end[0]:
            if mark != bare or self._is_nested:  # a line break before it belongs to the value
                return None, False
            length += len((yield from reader.ahead(length, _MISSPELT, _MOST_IN_KEY)))
            last = (yield from reader.look(length + len(marks.any_end[1])))[length:]
            if last != marks.any_end[1] and reader.ends_at(length + len(last)):
                raise CutOff
            length += len(last) if last == marks.any_end[1] else 0
            return (length if (yield from self._continues(length)) else None), False
        if bare != marks.stem:
            after = dict(marks.call_ends)[bare]
            found = yield from reader.follows(length, after, marks.gap)
            is_text = found is None or (yield from self._is_closed_later(length))
            return (None if is_text else 0), False
        word = yield from reader.ahead(length, _MISSPELT, _MOST_MISSPELT)
        length += len(word)
        has_last = (yield from reader.look(length + 1))[length:] == marks.end[-1]
        if not has_last and reader.ends_at(length):
            raise CutOff
        length += has_last
        is_right = has_last and marks.end == f"{bare}{word}{marks.end[-1]}"
        is_end = yield from self._continues(length, is_certain=is_right)
        return (length if is_end else None), is_right

    def _continues(self, length: int, *, is_certain: bool = False) -> Steps[bool]:
        """Whether the call continues, or ends, behind a closing mark, which is `length` long.

        Raises CutOff: the text ends there, and the mark is not certain to be one.
        """
        marks, reader = self._marks, self._reader
        found = yield from reader.follows(length, (marks.key_begin, *marks.after), marks.gap)
        if found == marks.key_begin:
            begin = yield from self._offset(length, found)
            key = yield from reader.ahead(begin, _KEY, _MOST_IN_KEY)
            if key.startswith("/"):  # a closing mark may begin as a key does
                found = yield from reader.follows(length, marks.after, marks.gap)
            elif self._is_nested:
                found = found if self._is_next(key.strip()) else None
        elif found and (yield from self._is_closed_later((yield from self._offset(length, found)))):
            return False
        if found == "" and not is_certain:
            raise CutOff
        return found is not None

    def _is_closed_later(self, at: int) -> Steps[bool]:
        """Whether the call that ends here is a part of the value: the value's own end follows, and
        no other call begins before.
        """
        if not self._is_nested:
            return False
        found = yield from self._reader.find(_own_end(self._marks), _MOST_HELD, at)
        return found is not None and found.lastgroup == "own"

    def _offset(self, start: int, mark: str) -> Steps[int]:
        """Where `mark` ends, which follows white space from `start` on."""
        blank = yield from self._reader.ahead(start, self._marks.gap, 256)
        return start + len(blank) + len(mark)


@lru_cache(maxsize=64)
def _own_end(marks: ValueMarks) -> re.Pattern[str]:
    """The end of a value, and behind it the next key or the call's end; or the begin of a call."""
    after = _one_of((marks.key_begin, *(end for end, _ in marks.call_ends)))
    own = f"(?P<own>{re.escape(marks.end)}(?:{marks.gap.pattern}){after})"
    return re.compile(f"{own}|{_one_of(filter(None, marks.begins))}")


def _one_of(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, words))})"
