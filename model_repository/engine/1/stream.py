"""One request's responses: collects a runtime's tokens and sends them through Triton."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from port import DEADLINE_EXCEEDED, INVALID_PARAMETER, FinishReason, Token

INT32_MOST = 2**31 - 1


class RowClock:
    """Times the work on one request: prefill and decode, without the waits for a row.

    Prefill is the time from getting a row to the next new token, decode the time from that token to
    the last one. After a preemption the request gets another row: both are then sums over its rows,
    and the time without a row is in neither. Only the runtime's thread calls it. `is_prefilling`:
    no new token has come since the row.
    """

    __slots__ = ("_decode_s", "_prefill_s", "_since", "is_prefilling")

    def __init__(self) -> None:
        self.is_prefilling = False
        self._since: float | None = None  # None without a row
        self._prefill_s = self._decode_s = 0.0

    def get_row(self, since: float) -> None:
        """`since`: of time.monotonic."""
        self._since = since
        self.is_prefilling = True

    def see_token(self) -> None:
        """The first new token since the row; later ones need no call."""
        self._add()
        self.is_prefilling = False

    def lose_row(self) -> None:
        self._add()
        self._since = None

    def end(self) -> dict[str, int]:
        """The output tensors; none if the request never had a row."""
        if self._since is None:
            return {}
        self._add()
        return {
            "prefill_time_us": microseconds(self._prefill_s),
            "decode_time_us": microseconds(self._decode_s),
        }

    def _add(self) -> None:
        now = time.monotonic()
        spent_s = 0.0 if self._since is None else now - self._since
        if self.is_prefilling:
            self._prefill_s += spent_s
        else:
            self._decode_s += spent_s
        self._since = now


def microseconds(seconds: float) -> int:
    """As an INT32 tensor has them."""
    return min(round(seconds * 1_000_000), INT32_MOST)


End = Literal["finished", "cancelled", "failed", "refused"]
ECHO_AT_ONCE = 64  # tokens of an echoed prompt in a response
LATE = {
    "code": DEADLINE_EXCEEDED,
    "param": None,
    "message": "The request's timeout_ms has passed.",
}
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Stream:
    """A port.TokenSink. It calls `post` when it has something to send, and when it ends.

    `lease`: the id of its lease, see leases.py; empty for none.
    """

    def __init__(
        self, sender: Any, prompt_tokens: int, post: Callable[[Stream], None], lease: str = ""
    ) -> None:
        self._sender = sender
        self._post = post
        self._lock = threading.Lock()
        self._is_posted = False
        self._echoed: list[Token] = []
        self._tokens: list[Token] = []
        self._first = {"num_input_tokens": prompt_tokens, "num_cached_tokens": 0}
        self._blocks: Sequence[int] = ()
        self._last: dict[str, int] = {}
        self._opened_at = time.monotonic()
        self._clock = RowClock()
        self._finish: FinishReason | None = None
        self._error: Any = None
        self._end: End | None = None
        self._deadline = math.inf
        self._is_late = False
        self.lease = lease
        self.is_gone = False  # the client has disconnected, or the stream must end for it
        self.sent_at: float | None = None  # the last response; set by the response writer

    def end_after(self, timeout_s: float | None) -> None:
        """Sets the deadline, counted from now. The response writer checks deadlines."""
        if timeout_s is not None:
            self._deadline = time.monotonic() + timeout_s

    # called by the runtime's thread

    def started(
        self,
        cached_tokens: int,
        *,
        is_late: bool = False,
        began_at: float | None = None,
        blocks: Sequence[int] = (),
        prompt_tokens: int | None = None,
    ) -> None:
        self._blocks = blocks
        if prompt_tokens is not None:
            self._first["num_input_tokens"] = prompt_tokens
        # the cache may also have tokens of an answer that continues
        self._first["num_cached_tokens"] = min(cached_tokens, self._first["num_input_tokens"])
        if is_late:  # the wait for a row counts as prefill, because nobody knows when it ended
            self._clock.get_row(self._opened_at)
            return
        since = time.monotonic() if began_at is None else max(began_at, self._opened_at)
        self._first["queue_time_us"] = microseconds(since - self._opened_at)
        self._clock.get_row(since)

    def preempted(self) -> None:
        self._clock.lose_row()

    def resumed(self) -> None:
        self._clock.get_row(time.monotonic())

    def echo(self, tokens: list[Token], finish: FinishReason | None) -> None:
        """Keeps them, to send them with the first new token."""
        with self._lock:
            self._echoed = tokens
            if finish is None:
                return
            self._last = self._clock.end()
            self._finish, self._end, self._is_posted = finish, "finished", True
        self._post(self)

    def token(self, token: Token, finish: FinishReason | None) -> None:
        if self._clock.is_prefilling and finish is None:  # an only token has no time to decode
            self._clock.see_token()
        with self._lock:
            self._tokens.append(token)
            if finish is not None:
                self._last = self._clock.end()
                self._finish, self._end = finish, "finished"
            elif self._is_posted:
                return
            self._is_posted = True
        self._post(self)

    def finished(self, finish: FinishReason) -> None:
        self._last = self._clock.end()
        self._finish = finish
        self._close("finished")

    def refuse(self, param: str, message: str, *, code: str = INVALID_PARAMETER) -> None:
        refusal = {"code": code, "param": param or None, "message": message}
        self._close("refused", json.dumps(refusal), pb_utils.TritonError.INVALID_ARG)

    def fail(self, message: str) -> None:
        self._close("failed", message, pb_utils.TritonError.INTERNAL)

    def cancelled(self) -> None:
        if not self._is_late:
            self._close("cancelled")
            return
        self._close("cancelled", json.dumps(LATE), pb_utils.TritonError.CANCELLED)

    def is_behind(self) -> bool:
        return self._is_posted

    def is_abandoned(self) -> bool:
        return self.is_gone

    def _close(self, end: End, message: str | None = None, code: Any = None) -> None:
        with self._lock:
            self._end = end
            if message is not None:
                self._error = pb_utils.TritonError(message, code)
            self._is_posted = True
        self._post(self)

    # called by the response writer's thread

    @property
    def is_urgent(self) -> bool:
        """Whether its next response is the first or the last one, which never wait."""
        return self.sent_at is None or self._end is not None

    def check_client(self) -> None:
        """Asks Triton whether the client has disconnected."""
        self.is_gone = self.is_gone or bool(self._sender.is_cancelled())

    def check_deadline(self, now: float) -> None:
        """Past its deadline, the runtime ends the stream as if the client had disconnected."""
        if now >= self._deadline:
            self._is_late = self.is_gone = True

    def send(self) -> tuple[int, int, End | None]:
        """Sends all tokens as one response; returns their number, that of the prompt's tokens if it
        is the first one, and how the stream ended.
        """
        prompt_tokens = 0
        with self._lock:
            if not self._is_posted:
                return 0, 0, None
            tokens, self._tokens = self._tokens, []
            echoed, self._echoed = self._echoed, []
            end, finish, error, self._is_posted = self._end, self._finish, self._error, False
        flags = 0 if end is None else FINAL
        if error is not None:
            self._sender.send(pb_utils.InferenceResponse(error=error), flags=flags)
        elif echoed or tokens or finish is not None:
            prompt_tokens = self._first.get("num_input_tokens", 0)
            self._send_echo(echoed[:-ECHO_AT_ONCE])
            self._sender.send(
                self._response([*echoed[-ECHO_AT_ONCE:], *tokens], finish), flags=flags
            )
        else:
            self._sender.send(flags=flags)
        return len(tokens), prompt_tokens, end

    def _send_echo(self, tokens: list[Token]) -> None:
        """In pieces, because a reader needs some milliseconds for one with log-probabilities."""
        for start in range(0, len(tokens), ECHO_AT_ONCE):
            self._sender.send(self._response(tokens[start : start + ECHO_AT_ONCE], None), flags=0)

    def _response(self, tokens: list[Token], finish: FinishReason | None) -> Any:
        counts, self._first = self._first, {}
        blocks, self._blocks = self._blocks, ()
        return _response(tokens, counts if finish is None else counts | self._last, blocks, finish)


def _response(
    tokens: list[Token],
    counts: dict[str, int],
    blocks: Sequence[int],
    finish: FinishReason | None,
) -> Any:
    arrays: dict[str, npt.NDArray[Any]] = {
        "output_ids": np.array([[[token.id for token in tokens]]], dtype=np.int32)
    }
    for name, count in counts.items():
        arrays[name] = np.array([[count]], dtype=np.int32)
    if blocks:
        arrays["prompt_blocks"] = np.array([blocks], dtype=np.uint64)
    if finish is not None:
        arrays["finish_reason"] = np.array([[finish.encode()]], dtype=np.object_)
    if tokens and tokens[0].log_probs is not None:
        arrays |= _log_probs(tokens)
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor(name, array) for name, array in arrays.items()]
    )


def _log_probs(tokens: list[Token]) -> dict[str, npt.NDArray[Any]]:
    """output_log_probs [1, 1, tokens]; if there are alternatives, those as [1, tokens, top]."""
    found = [token.log_probs for token in tokens if token.log_probs is not None]
    arrays: dict[str, npt.NDArray[Any]] = {
        "output_log_probs": np.array([[[one.sampled for one in found]]], dtype=np.float32)
    }
    if found[0].top:
        top = np.array([one.top for one in found])
        arrays["top_log_prob_ids"] = top[None, :, :, 0].astype(np.int32)
        arrays["top_log_probs"] = top[None, :, :, 1].astype(np.float32)
    return arrays
