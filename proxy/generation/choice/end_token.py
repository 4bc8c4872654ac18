"""The token that ended an answer, where it is no part of the text. Called by `choice`."""

from __future__ import annotations

from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import GenerationRequest


class EndToken:
    """`shows_specials`: special tokens have text here."""

    __slots__ = ("_hidden", "_includes_stop", "_shows_specials")

    def __init__(self, request: GenerationRequest, *, shows_specials: bool) -> None:
        self._includes_stop = request.includes_stop
        self._hidden = frozenset(
            () if request.includes_stop else request.sampling.stop_token_ids or ()
        )
        self._shows_specials = shows_specials

    def number(self, delta: TokenDelta) -> int:
        """Its place in the delta, from 1; 0 where there is none."""
        if delta.finish is not FinishReason.STOP or not delta.token_bytes:
            return 0
        is_hidden = bool(delta.token_ids) and delta.token_ids[-1] in self._hidden
        is_shown = self._shows_specials and self._includes_stop
        is_special = not delta.token_bytes[-1] and not is_shown
        return len(delta.token_bytes) if is_hidden or is_special else 0
