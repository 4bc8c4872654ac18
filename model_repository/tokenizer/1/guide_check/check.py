"""Whether a guide can be used, asked before the engine sees it: its type, size, form, compile."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from admission import Refusal
from grammars.compilation import KINDS
from guide_check.sandbox import Sandbox, SandboxDied

logger = logging.getLogger(__name__)

KIND_PARAM = "guided_decoding_guide_type"
TEXT_PARAM = "guided_decoding_guide"
PENDING = "guide_pending"
VERDICTS = 4096
PENDING_AT_MOST = 64
CROWDED_PATIENCE_S = 0.02
TIMED_OUT = "it took longer"
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

    @cached_property
    def key(self) -> bytes:
        return hashlib.sha256(f"{self.kind}\0{self.text}".encode()).digest()


@dataclass(frozen=True)
class _Verdict:
    reason: str | None
    until: float = math.inf


class GuideCheck:
    """For one thread. Nothing is imported or started before `start`, or the first guide."""

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
        self._text_bytes = text_bytes
        self.sandbox = Sandbox(info_file, memory_bytes=memory_bytes, timeout_s=timeout_s)
        self._verdicts: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._pending: dict[int, bytes] = {}  # keys of what the sandbox was asked, by number
        self._number = 0

    def start(self) -> None:
        """Begins to make the first guide as quick as the later ones. Returns at once."""
        if self._kinds:
            self.sandbox.start()

    def wait_until_started(self) -> None:
        """Returns when guides can be tried, or are found not to be.

        The second is logged, and no reason to serve nothing: a request with a guide tries again
        and fails with the reason, one without a guide does not notice.
        """
        try:
            self.sandbox.wait_until_started()
        except RuntimeError as error:
            logger.error("requests with guides will fail: %s", error)

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
        self._pending.clear()

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
        if self._standing(question) is None:
            if question.key not in self._pending.values():
                patience_s = self._ask(question, patience_s)
            elif not math.isinf(patience_s):
                patience_s = 0
            self._hear_of(question, patience_s)
        verdict = self._standing(question)
        if verdict is None:
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

    def _ask(self, question: _Question, patience_s: float) -> float:
        """How long to wait for the answer: hardly, where others are waited for already."""
        is_crowded = bool(self._pending)
        while len(self._pending) >= PENDING_AT_MOST:
            if not math.isinf(patience_s):
                return 0
            self._hear(math.inf)
        self._number += 1
        try:
            self.sandbox.ask(self._number, question.kind, question.text)
        except SandboxDied:
            self._pending.clear()
            self.sandbox.ask(self._number, question.kind, question.text)
        self._pending[self._number] = question.key
        if is_crowded and not math.isinf(patience_s):
            return min(patience_s, CROWDED_PATIENCE_S)
        return patience_s

    def _hear_of(self, question: _Question, wait_s: float) -> None:
        """Waits for this answer, and asks once more if the child ends meanwhile."""
        end = time.monotonic() + wait_s
        tries = 1
        while question.key in self._pending.values():
            left_s = end - time.monotonic()
            if self._hear(max(0.0, left_s)) is False and left_s <= 0:
                return
            if not self._pending and self._standing(question) is None and tries:
                tries -= 1
                self._ask(question, wait_s)

    def _hear(self, wait_s: float) -> bool:
        """Takes the answers that are there, or the next one. Whether there was any.

        A child that was killed from outside says nothing about the guides: they are asked again.
        """
        is_any = False
        while self._pending:
            try:
                answer = self.sandbox.answer(0 if is_any else wait_s)
            except SandboxDied:
                self._pending.clear()
                return is_any
            if answer is None:
                return is_any
            is_any = True
            key = self._pending.pop(answer.number)
            is_lasting = not (answer.reason or "").startswith(TIMED_OUT)
            until = math.inf if is_lasting else time.monotonic() + TIMEOUT_STANDS_S
            self._keep(key, _Verdict(answer.reason, until))
        return is_any

    def _keep(self, key: bytes, verdict: _Verdict) -> None:
        self._verdicts[key] = verdict
        self._verdicts.move_to_end(key)
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
