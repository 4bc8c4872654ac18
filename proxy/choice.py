"""One choice's chain: token bytes -> text -> stop strings -> events. Called by service."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from proxy.domain.events import Finished, LoggedToken, OutputEvent, TextDelta
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason, TokenDelta, TokenLogProb, Usage
from proxy.domain.request import ChatPrompt, GenerationRequest, TextPrompt
from proxy.stops import StopMatcher
from proxy.text import TextDecoder


class Choice:
    """What is pushed are the deltas of one engine stream, in order."""

    def __init__(
        self,
        request: GenerationRequest,
        card: ModelCard,
        index: int = 0,
        *,
        counts_prompt: bool = True,
    ) -> None:
        self._index = index
        self._counts_prompt = counts_prompt
        self._echo = _echo(request)
        strips = card.facts.strips_leading_space and not self._echo and not _continues(request)
        self._text = TextDecoder(strips_leading_space=strips)
        self._stops = StopMatcher(request.stop, includes_stop=request.includes_stop)
        self._min_tokens = request.sampling.min_tokens or 0
        self._end_ids = frozenset(
            () if request.includes_stop else request.sampling.stop_token_ids or ()
        )
        self._returns_token_ids = request.returns_token_ids
        self._logs = request.sampling.top_log_probs is not None
        self._logged = _HeldTokens(len(self._echo))
        self._log_prob_sum = 0.0
        self._tells_usage = request.tells_usage
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._completion_tokens = 0
        self.is_finished = False

    def push(self, delta: TokenDelta) -> list[OutputEvent]:
        if delta.prompt_tokens is not None:
            self._count_prompt(delta)
        text, logged, taken = self._push_tokens(delta)
        is_stopped = self._stops.is_stopped
        finish = FinishReason.STOP if is_stopped else delta.finish
        if finish is not None and not is_stopped:
            text += self._stops.push(self._text.flush())
            if self._stops.is_stopped:
                finish = FinishReason.STOP
            text += self._stops.flush()
            logged += self._logged.rest()
        ids = delta.token_ids[:taken] if self._returns_token_ids else ()
        events: list[OutputEvent] = []
        if text or logged or ids or self._echo:
            events.append(self._delta(text, logged, ids))
        if finish is not None:
            self.is_finished = True
            events.append(self._finished(finish))
        return events

    def _count_prompt(self, delta: TokenDelta) -> None:
        if self._counts_prompt:
            self._prompt_tokens = delta.prompt_tokens or 0
            self._cached_tokens = delta.cached_tokens or 0

    def _push_tokens(self, delta: TokenDelta) -> tuple[str, list[LoggedToken], int]:
        """Token by token, so that all ends with the token that completed a stop string.

        The text and its logged tokens that may be sent, and how many tokens were taken.
        """
        text, taken = "", 0
        logged: list[LoggedToken] = []
        end_at = 0 if delta.finish is None else self._silent_end(delta)
        for data in delta.token_bytes:
            taken += 1
            self._completion_tokens += 1
            piece = self._text.push(b"" if taken == end_at else data)
            # stop strings are not looked for in the first `min_tokens`
            checked = self._completion_tokens > self._min_tokens
            passed = self._stops.push(piece) if checked else piece
            text += passed
            if delta.log_probs:
                log_prob = delta.log_probs[taken - 1]
                self._log_prob_sum += log_prob.log_prob
                if self._logs and taken != end_at:
                    self._logged.push(data, log_prob, len(piece))
                logged += self._logged.released(len(passed), is_last=self._stops.is_stopped)
            if self._stops.is_stopped:
                break
        return text, logged, taken

    def _silent_end(self, delta: TokenDelta) -> int:
        """The number of the token that ended the answer and is no part of the text, 0 for none."""
        if delta.finish is not FinishReason.STOP or not delta.token_bytes:
            return 0
        is_hidden = bool(delta.token_ids) and delta.token_ids[-1] in self._end_ids
        return len(delta.token_bytes) if is_hidden or not delta.token_bytes[-1] else 0

    def _delta(self, text: str, logged: list[LoggedToken], ids: tuple[int, ...]) -> TextDelta:
        text, self._echo = self._echo + text, ""
        usage = self._usage() if self._tells_usage else None
        return TextDelta(
            text, choice=self._index, log_probs=tuple(logged), token_ids=ids, usage=usage
        )

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            cached_tokens=self._cached_tokens,
        )

    def _finished(self, reason: FinishReason) -> Finished:
        tokens = self._completion_tokens
        mean = self._log_prob_sum / tokens if self._logs and tokens else None
        return Finished(reason=reason, usage=self._usage(), choice=self._index, mean_log_prob=mean)


def _echo(request: GenerationRequest) -> str:
    if request.echoes_prompt and isinstance(request.prompt, TextPrompt):
        return request.prompt.text
    return ""


def _continues(request: GenerationRequest) -> bool:
    """Then a space at the beginning stands between the caller's words and the model's."""
    return isinstance(request.prompt, ChatPrompt) and request.prompt.continues_last


@dataclass(frozen=True, slots=True)
class _Held:
    token_bytes: bytes
    log_prob: TokenLogProb
    start: int  # in characters of the generated text
    end: int


class _HeldTokens:
    """Tokens whose text has not been sent yet; they go with it, or are dropped with a stop string.

    A token without characters of its own (the first bytes of one) goes with the character.
    """

    __slots__ = ("_before", "_decoded", "_held", "_sent")

    def __init__(self, before: int) -> None:
        self._before = before  # characters in front of the generated text
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
        return LoggedToken(token.token_bytes, token.log_prob, self._before + token.start)
