"""Holds tokens with log-probabilities until their text may be sent. Used by `choice`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from proxy.domain.events import LoggedToken
from proxy.domain.output import TokenLogProb


@dataclass(frozen=True, slots=True)
class _Held:
    token_bytes: bytes
    log_prob: TokenLogProb
    start: int  # in characters of the generated text
    end: int


class HeldTokens:
    """Tokens whose text has not been sent yet; they go with it, or are dropped with a stop string.

    `before`: characters in front of the generated text; may be set until the first token. A token
    without characters of its own (the first bytes of one) goes with the character.
    """

    __slots__ = ("_decoded", "_held", "_sent", "before")

    def __init__(self) -> None:
        self.before = 0
        self._decoded = 0
        self._sent = 0
        self._held: deque[_Held] = deque()

    def push(self, token_bytes: bytes, log_prob: TokenLogProb, characters: int) -> None:
        end = self._decoded + characters
        self._held.append(_Held(token_bytes, log_prob, self._decoded, end))
        self._decoded = end

    def released(self, characters: int, *, is_last: bool) -> list[LoggedToken]:
        """After so many more characters were sent; with the last ones, tokens cut short too."""
        self._sent += characters
        out = []
        while self._held and self._is_out(self._held[0], is_last):
            out.append(self._logged(self._held.popleft()))
        return out

    def rest(self) -> list[LoggedToken]:
        """When all text has been sent."""
        held, self._held = self._held, deque()
        return [self._logged(token) for token in held]

    def _is_out(self, token: _Held, is_last: bool) -> bool:
        if not token.token_bytes:
            return token.end <= self._sent
        return token.start < self._sent and (is_last or token.end <= self._sent)

    def _logged(self, token: _Held) -> LoggedToken:
        return LoggedToken(token.token_bytes, token.log_prob, self.before + token.start)
