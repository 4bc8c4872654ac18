"""How many prompt tokens one step may prefill, so that running streams do not wait long."""

from __future__ import annotations

LEAST_TOKENS = 8
LEAST_STALL_S = 0.02
DECODE_STEPS = 2.0
WEIGHT = 0.2  # of a new measurement in the running means


class PrefillBudget:
    """`stall_s`: for how long prefill may hold up decoding rows at a time.

    None: two decode steps, and 20 ms at least. Both speeds are measured as the engine runs.
    """

    def __init__(self, *, step_tokens: int, stall_s: float | None) -> None:
        self._step_tokens = step_tokens
        self._stall_s = stall_s
        self._token_s: float | None = None
        self._decode_s = 0.0

    def tokens(self, *, is_decoding: bool) -> int:
        if not is_decoding or self._token_s is None:
            return self._step_tokens
        stall_s = self._stall_s or max(LEAST_STALL_S, DECODE_STEPS * self._decode_s)
        return min(self._step_tokens, max(LEAST_TOKENS, int(stall_s / self._token_s)))

    def prefilled(self, tokens: int, seconds: float) -> None:
        token_s = seconds / tokens
        before = token_s if self._token_s is None else self._token_s
        self._token_s = before + WEIGHT * (token_s - before)

    def decoded(self, seconds: float) -> None:
        before = self._decode_s or seconds
        self._decode_s = before + WEIGHT * (seconds - before)
