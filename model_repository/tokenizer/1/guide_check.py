"""Whether a guide can be used, asked before the engine sees it: its type, size, form, compile."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from admission import Refusal
from grammars import KINDS
from sandbox import Sandbox, SandboxDied, SandboxTimeout

KIND_PARAM = "guided_decoding_guide_type"
TEXT_PARAM = "guided_decoding_guide"
PENDING = "guide_pending"
VERDICTS = 4096
TIMEOUT_STANDS_S = 60.0  # a busy machine may have been the reason
ECHO_AT_MOST = 40
MB = 1_000_000
ESCAPED_LETTER = re.compile(r"\\(?:x[0-9a-fA-F]{2}|([A-Za-z])|.)", re.DOTALL)
# Letters behind a backslash that xgrammar knows, or refuses itself; others it takes as they are.
KNOWN_ESCAPES = frozenset("dDwWsSnrtfvaecubBpP")


@dataclass(frozen=True)
class _Question:
    kind: str
    text: str
    tries: int = 1  # after this one

    @cached_property
    def key(self) -> bytes:
        return hashlib.sha256(f"{self.kind}\0{self.text}".encode()).digest()


@dataclass(frozen=True)
class _Verdict:
    reason: str | None
    until: float = math.inf


class GuideCheck:
    """For one thread. Nothing is imported or started before the first guide."""

    def __init__(
        self,
        info_file: Path,
        *,
        timeout_s: float,
        memory_bytes: int,
        text_bytes: int = 256_000,
        kinds: Collection[str] = tuple(KINDS),
    ) -> None:
        """`info_file` is the guide.json that `build` writes; `text_bytes` may a guide have.

        `kinds`: those that the engine honours.
        """
        self._kinds = kinds
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._text_bytes = text_bytes
        self.sandbox = Sandbox(info_file, memory_bytes=memory_bytes, timeout_s=timeout_s)
        self._verdicts: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._asked: _Question | None = None  # of the sandbox, without an answer yet

    def check(self, kind: str, text: str, *, patience_s: float = math.inf) -> None:
        """Returns where the guide can be used.

        Raises:
            Refusal: with the reason; or PENDING, when it takes longer than `patience_s` to tell:
                the compile goes on, and asking again gets its answer.
        """
        if kind not in self._kinds:
            shown = repr(kind[:ECHO_AT_MOST])
            raise Refusal(
                "invalid_parameter", KIND_PARAM, f"{shown} is not one of {', '.join(self._kinds)}"
            )
        reason = self._unsound(kind, text) or self._verdict(kind, text, patience_s)
        if reason is not None:
            raise Refusal("invalid_parameter", TEXT_PARAM, f"the {kind} guide: {reason}")

    def close(self) -> None:
        self.sandbox.close()
        self._asked = None

    def _unsound(self, kind: str, text: str) -> str | None:
        """What can be told without compiling."""
        if kind == "json":
            return None
        if not text:
            return "it is empty"
        if len(text.encode()) > self._text_bytes:
            return f"it has more than {self._text_bytes} bytes"
        if kind == "regex":
            return _unknown_escape(text)
        if kind == "structural_tag":
            return _not_a_schema(text) or _unknown_escape_in(text)
        return _not_a_schema(text) if kind == "json_schema" else None

    def _verdict(self, kind: str, text: str, patience_s: float) -> str | None:
        question = _Question(kind, text)
        self._hear(0)
        while (verdict := self._standing(question)) is None:
            is_ours = self._asked is None
            if is_ours:
                self._ask(question)
            if not self._hear(patience_s if is_ours or math.isinf(patience_s) else 0):
                raise Refusal(
                    PENDING, TEXT_PARAM, "a guide is still being compiled: send the request again"
                )
        return verdict.reason

    def _standing(self, question: _Question) -> _Verdict | None:
        verdict = self._verdicts.get(question.key)
        if verdict is None or verdict.until < time.monotonic():
            return None
        self._verdicts.move_to_end(question.key)
        return verdict

    def _ask(self, question: _Question) -> None:
        self.sandbox.begin(question.kind, question.text)
        self._asked = question

    def _hear(self, wait_s: float) -> bool:
        """Whether what was asked is answered by now, if anything was."""
        asked, self._asked = self._asked, None
        if asked is None:
            return True
        try:
            answer = self.sandbox.answer(wait_s)
        except SandboxTimeout:
            reason = f"it took longer than {self._timeout_s:g} s to compile"
            self._keep(asked, _Verdict(reason, time.monotonic() + TIMEOUT_STANDS_S))
        except SandboxDied:  # one that was killed from outside says nothing about the guide
            if asked.tries:
                self._ask(replace(asked, tries=asked.tries - 1))
                return self._hear(wait_s)
            limit = self._memory_bytes // MB
            reason = f"it needs more than {limit} MB to compile, or is nested too deeply"
            self._keep(asked, _Verdict(reason))
        else:
            if answer is None:
                self._asked = asked
                return False
            self._keep(asked, _Verdict(answer.reason))
        return True

    def _keep(self, question: _Question, verdict: _Verdict) -> None:
        self._verdicts[question.key] = verdict
        self._verdicts.move_to_end(question.key)
        if len(self._verdicts) > VERDICTS:
            self._verdicts.popitem(last=False)


def _unknown_escape(pattern: str) -> str | None:
    """Such as `\\A`, `\\Z`, `\\h`, `\\x{41}`: the answer would have the letter in it."""
    for letter in filter(None, ESCAPED_LETTER.findall(pattern)):
        if letter not in KNOWN_ESCAPES:
            return f"the escape \\{letter} is not supported; the whole answer has to match"
    return None


def _unknown_escape_in(tag: str) -> str | None:
    """Of the regular expressions in a structural tag."""
    level = [json.loads(tag)] if '"regex"' in tag else []
    while level:
        one = level.pop()
        if isinstance(one, list):
            level += one
        elif isinstance(one, dict):
            level += one.values()
            if one.get("type") == "regex" and (reason := _unknown_escape(str(one.get("pattern")))):
                return reason
    return None


def _not_a_schema(text: str) -> str | None:
    try:
        schema = json.loads(text)
    except RecursionError:
        return "it is nested too deeply"
    except ValueError as error:
        return f"it is not JSON: {error}"
    return None if isinstance(schema, (dict, bool)) else "it is neither an object nor a boolean"
