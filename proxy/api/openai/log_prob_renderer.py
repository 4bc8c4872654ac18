"""Renders log-probabilities in the two forms of chat completions and of completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson

from proxy.domain.events import Finished, LoggedToken, OutputEvent
from proxy.domain.output import Alternative, TokenLogProb

LOWEST_LOG_PROB = -9999.0  # OpenAI's value for a probability of 0: JSON has no infinity


class LogProbRenderer(ABC):
    """`by_id`: writes a token as "token_id:N" instead of its text.

    Of an answer that is not streamed, it renders the tokens as they come, to JSON text: objects
    would take five times the memory, and rendering them at the end would block the loop.
    """

    def __init__(self, *, by_id: bool) -> None:
        self._by_id = by_id
        self._kept: dict[int, dict[str, Any]] = {}

    @abstractmethod
    def rendered(self, tokens: Iterable[LoggedToken]) -> dict[str, Any]:
        """The tokens' log-probabilities in the form of one protocol."""

    def kept(self, event: OutputEvent) -> OutputEvent:
        """Takes the event's log-probabilities; returns the event without them."""
        if isinstance(event, Finished) or not event.log_probs:
            return event
        kept = self._kept.setdefault(event.choice, {})
        for name, value in self.rendered(event.log_probs).items():
            if isinstance(value, list):
                kept.setdefault(name, []).extend(map(_as_text, value))
            else:
                kept[name] = value
        return replace(event, log_probs=())

    def of_choice(self, choice: int) -> dict[str, Any] | None:
        """The lists of one choice; None if it has no log-probabilities."""
        return self._kept.get(choice)

    def _token(self, data: bytes, value: Alternative | TokenLogProb) -> dict[str, Any]:
        name, log_prob = self._name(data, value), _finite(value.log_prob)
        return {"token": name, "logprob": log_prob, "bytes": list(data)}

    def _name(self, data: bytes, value: Alternative | TokenLogProb) -> str:
        """The token's text, or its id; a token that is a part of a character is U+FFFD."""
        return f"token_id:{value.token_id}" if self._by_id else data.decode(errors="replace")


class ChatLogProbs(LogProbRenderer):
    def rendered(self, tokens: Iterable[LoggedToken]) -> dict[str, Any]:
        content = [
            {
                **self._token(token.token_bytes, token.log_prob),
                "top_logprobs": [self._token(one.token_bytes, one) for one in token.log_prob.top],
            }
            for token in tokens
        ]
        return {"content": content, "refusal": None}


class CompletionLogProbs(LogProbRenderer):
    def rendered(self, tokens: Iterable[LoggedToken]) -> dict[str, Any]:
        """The form of completions: a list for each property; the top tokens include the token."""
        listed = list(tokens)
        return {
            "tokens": [self._name(token.token_bytes, token.log_prob) for token in listed],
            "token_logprobs": [_finite(token.log_prob.log_prob) for token in listed],
            "top_logprobs": [self._top(token) for token in listed],
            "text_offset": [token.offset for token in listed],
        }

    def _top(self, token: LoggedToken) -> dict[str, float | None] | None:
        """Alternatives by text; of equal texts the likeliest. None for a prompt's first token."""
        if token.log_prob.log_prob is None:
            return None
        found: dict[str, float | None] = {}
        for one in token.log_prob.top:
            found.setdefault(self._name(one.token_bytes, one), _finite(one.log_prob))
        own = self._name(token.token_bytes, token.log_prob)
        found.setdefault(own, _finite(token.log_prob.log_prob))
        return found


def _as_text(value: Any) -> Any:
    return orjson.Fragment(orjson.dumps(value)) if isinstance(value, dict) else value


def _finite(value: float | None) -> float | None:
    return None if value is None else max(value, LOWEST_LOG_PROB)
