"""Whether a guide can be used, asked before the engine sees it: its type, size, form, compile."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path

from admission import Refusal
from grammars import KINDS
from sandbox import Sandbox, SandboxDied, SandboxTimeout

KIND_PARAM = "guided_decoding_guide_type"
TEXT_PARAM = "guided_decoding_guide"
VERDICTS = 4096
TIMEOUT_STANDS_S = 60.0  # a busy machine may have been the reason
ECHO_AT_MOST = 40
MB = 1_000_000
ESCAPED_LETTER = re.compile(r"\\(?:x[0-9a-fA-F]{2}|([A-Za-z])|.)", re.DOTALL)
# Letters behind a backslash that xgrammar knows, or refuses itself; others it takes as they are.
KNOWN_ESCAPES = frozenset("dDwWsSnrtfvaecubBpP")


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
        self.sandbox = Sandbox(info_file, memory_bytes=memory_bytes)
        self._verdicts: OrderedDict[bytes, tuple[str | None, float]] = OrderedDict()

    def check(self, kind: str, text: str) -> None:
        """Raises Refusal with the reason where the guide cannot be used."""
        if kind not in self._kinds:
            shown = repr(kind[:ECHO_AT_MOST])
            raise Refusal(
                "invalid_parameter", KIND_PARAM, f"{shown} is not one of {', '.join(self._kinds)}"
            )
        reason = self._unsound(kind, text) or self._verdict(kind, text)
        if reason is not None:
            raise Refusal("invalid_parameter", TEXT_PARAM, f"the {kind} guide: {reason}")

    def close(self) -> None:
        self.sandbox.close()

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

    def _verdict(self, kind: str, text: str) -> str | None:
        key = hashlib.sha256(f"{kind}\0{text}".encode()).digest()
        reason, until = self._verdicts.get(key, (None, -math.inf))
        if until < time.monotonic():
            reason, stands_s = self._compile(kind, text)
            self._verdicts[key] = reason, time.monotonic() + stands_s
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > VERDICTS:
            self._verdicts.popitem(last=False)
        return reason

    def _compile(self, kind: str, text: str) -> tuple[str | None, float]:
        """The reason and for how many seconds it stands."""
        for _ in range(2):  # a child that was killed from outside says nothing about the guide
            try:
                return self.sandbox.ask(kind, text, timeout_s=self._timeout_s), math.inf
            except SandboxTimeout:
                return f"it took longer than {self._timeout_s:g} s to compile", TIMEOUT_STANDS_S
            except SandboxDied:
                continue
        limit = self._memory_bytes // MB
        return f"it needs more than {limit} MB to compile, or is nested too deeply", math.inf


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
