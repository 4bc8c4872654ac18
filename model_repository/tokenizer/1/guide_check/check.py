"""Checks guides before the engine sees them: their kind, size and form, and a trial compile."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection
from pathlib import Path

from grammars.compilation import KINDS
from guide_check.form import form_error
from guide_check.sandbox import Sandbox, SandboxDied
from guide_check.verdicts import Key, Verdict, Verdicts, key_of
from refusal import INVALID_PARAMETER, Refusal

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
        memory_bytes: int,
        text_bytes: int = 256_000,
        kinds: Collection[str] = tuple(KINDS),
    ) -> None:
        """`info_file`: the guide.json that `build` writes. `text_bytes`: the longest guide.

        `kinds`: those that the engine supports.
        """
        self._kinds = kinds
        self._text_bytes = text_bytes
        self.sandbox = Sandbox(info_file, memory_bytes=memory_bytes, timeout_s=timeout_s)
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
