"""Checks guides before the engine sees them: their kind, size and form, and a trial compile."""

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
from pathlib import Path

from grammars.compilation import KINDS
from guide_check.sandbox import Sandbox, SandboxDied
from refusal import INVALID_PARAMETER, Refusal

ESCAPED_LETTER = re.compile(r"\\(?:x[0-9a-fA-F]{2}|([A-Za-z])|.)", re.DOTALL)
# Letters that xgrammar knows after a backslash, or refuses itself. It reads any other letter as
# the letter itself.
KNOWN_ESCAPES = frozenset("dDwWsSnrtfvaecubBpP")


def form_error(kind: str, text: str, *, most_bytes: int) -> str | None:
    """The reason why the guide cannot be used; None if it may be compiled."""
    if kind == "json":
        return None
    if not text:
        return "it is empty"
    if len(text.encode()) > most_bytes:
        return f"it has more than {most_bytes} bytes"
    if kind == "regex":
        return _unknown_escape(text)
    if kind == "structural_tag":
        return _not_a_schema(text) or _unknown_escape_in_tag(text)
    return _not_a_schema(text) if kind == "json_schema" else None


def _unknown_escape(pattern: str) -> str | None:
    r"""Such as `\A`, `\Z`, `\h`, `\x{41}`: the answer would contain the letter."""
    for letter in filter(None, ESCAPED_LETTER.findall(pattern)):
        if letter not in KNOWN_ESCAPES:
            return f"the escape \\{letter} is not supported; the whole answer has to match"
    return None


def _unknown_escape_in_tag(tag: str) -> str | None:
    """Checks the regular expressions in a structural tag."""
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


VERDICTS_AT_MOST = 4096
TIMED_OUT = "it took longer"  # how the reason of a trial begins that ran out of time
TIMEOUT_STANDS_S = 60.0  # perhaps the machine was busy

Key = bytes


def key_of(kind: str, text: str) -> Key:
    return hashlib.sha256(f"{kind}\0{text}".encode()).digest()


@dataclass(frozen=True)
class Verdict:
    """`reason`: why the guide cannot be used; None if it can. `until`: by time.monotonic()."""

    reason: str | None
    until: float = math.inf


class Verdicts:
    """Evicts the least recently used verdict when there are too many."""

    def __init__(self) -> None:
        self._verdicts: OrderedDict[Key, Verdict] = OrderedDict()

    def get(self, key: Key) -> Verdict | None:
        verdict = self._verdicts.get(key)
        if verdict is None or verdict.until < time.monotonic():
            return None
        self._verdicts.move_to_end(key)
        return verdict

    def put(self, key: Key, reason: str | None) -> None:
        """A time-out stands for a minute only."""
        is_lasting = not (reason or "").startswith(TIMED_OUT)
        until = math.inf if is_lasting else time.monotonic() + TIMEOUT_STANDS_S
        self._verdicts[key] = Verdict(reason, until)
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > VERDICTS_AT_MOST:
            self._verdicts.popitem(last=False)


logger = logging.getLogger(__name__)

KIND_PARAM, TEXT_PARAM = "guided_decoding_guide_type", "guided_decoding_guide"
PENDING = "guide_pending"
PENDING_AT_MOST = 64
CROWDED_PATIENCE_S = 0.02
ECHO_AT_MOST = 40
MB = 1_000_000


class GuideCheck:
    """For one thread. Starts its child process at `start`, or with the first guide."""

    def __init__(
        self,
        info_file: Path,
        *,
        timeout_s: float,
        compile_s: float,
        memory_bytes: int,
        text_bytes: int = 256_000,
        kinds: Collection[str] = tuple(KINDS),
    ) -> None:
        """`info_file`: the guide.json that `build` writes. `text_bytes`: the longest guide.

        `kinds`: those that the engine supports.
        """
        self._kinds = kinds
        self._text_bytes = text_bytes
        self.sandbox = Sandbox(
            info_file, memory_bytes=memory_bytes, timeout_s=timeout_s, compile_s=compile_s
        )
        self._verdicts = Verdicts()
        self._pending: dict[int, Key] = {}  # the guides in the sandbox, by the trial's number
        self._number = 0

    def start(self) -> None:
        """Begins to start the child process, so that the first guide is fast. Returns at once."""
        if self._kinds:
            self.sandbox.start()

    def wait_until_started(self) -> None:
        """Waits for the child process, and logs its failure.

        A failure does not stop the model: only requests with guides fail, each with the reason.
        """
        try:
            self.sandbox.wait_until_started()
        except RuntimeError as error:
            logger.error("requests with guides will fail: %s", error)

    def check(self, kind: str, text: str, *, patience_s: float = math.inf) -> None:
        """Returns if the guide can be used.

        Raises:
            Refusal: with the reason; or with the code PENDING if the trial takes longer than
                `patience_s`. The trial then continues, and a later check gets its result.
        """
        if kind not in self._kinds:
            shown = repr(kind[:ECHO_AT_MOST])
            raise Refusal(
                INVALID_PARAMETER, KIND_PARAM, f"{shown} is not one of {', '.join(self._kinds)}"
            )
        reason = form_error(kind, text, most_bytes=self._text_bytes)
        if reason is None:
            reason = self._verdict(kind, text, patience_s).reason
        if reason is not None:
            raise Refusal(INVALID_PARAMETER, TEXT_PARAM, f"the {kind} guide: {reason}")

    def close(self) -> None:
        self.sandbox.close()
        self._pending.clear()

    def _verdict(self, kind: str, text: str, patience_s: float) -> Verdict:
        key = key_of(kind, text)
        self._receive(0)
        if self._verdicts.get(key) is None:
            self._wait_for(key, kind, text, patience_s)
        verdict = self._verdicts.get(key)
        if verdict is None:
            raise Refusal(
                PENDING, TEXT_PARAM, "the guide is still being compiled: send the request again"
            )
        return verdict

    def _wait_for(self, key: Key, kind: str, text: str, patience_s: float) -> None:
        """Submits the guide unless it is pending, and waits for its verdict.

        Submits it once more if the child process dies meanwhile.
        """
        if key not in self._pending.values():
            patience_s = self._submit(key, kind, text, patience_s)
        elif not math.isinf(patience_s):
            patience_s = 0
        end = time.monotonic() + patience_s
        has_retried = False
        while key in self._pending.values():
            left_s = end - time.monotonic()
            if not self._receive(max(0.0, left_s)) and left_s <= 0:
                return
            if not (self._pending or has_retried) and self._verdicts.get(key) is None:
                has_retried = True
                self._submit(key, kind, text, patience_s)

    def _submit(self, key: Key, kind: str, text: str, patience_s: float) -> float:
        """Returns how long to wait for the verdict: hardly, if other guides are pending."""
        is_crowded = bool(self._pending)
        while len(self._pending) >= PENDING_AT_MOST:
            if not math.isinf(patience_s):
                return 0
            self._receive(math.inf)
        self._number += 1
        try:
            self.sandbox.submit(self._number, kind, text)
        except SandboxDied:
            self._pending.clear()
            self.sandbox.submit(self._number, kind, text)
        self._pending[self._number] = key
        if is_crowded and not math.isinf(patience_s):
            return min(patience_s, CROWDED_PATIENCE_S)
        return patience_s

    def _receive(self, wait_s: float) -> bool:
        """Stores the results that are ready, or else waits for one; returns whether there was one.

        If the child process was killed, the pending guides have no result.
        """
        is_any = False
        while self._pending:
            try:
                result = self.sandbox.receive(0 if is_any else wait_s)
            except SandboxDied:
                self._pending.clear()
                return is_any
            if result is None:
                return is_any
            is_any = True
            self._verdicts.put(self._pending.pop(result.number), result.reason)
        return is_any
