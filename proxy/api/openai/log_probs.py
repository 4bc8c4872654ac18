"""Log-probabilities as chat completions and as completions write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.domain.events import LoggedToken

LEAST = -9999.0  # OpenAI's word for a probability of 0, which JSON has no number for


def chat_log_probs(tokens: Iterable[LoggedToken]) -> dict[str, Any]:
    content = [
        {
            **_token(token.token_bytes, token.log_prob.log_prob),
            "top_logprobs": [_token(one.token_bytes, one.log_prob) for one in token.log_prob.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def completion_log_probs(tokens: Iterable[LoggedToken]) -> dict[str, Any]:
    """The older form: a list for each property. The token itself is always among the top ones."""
    listed = list(tokens)
    return {
        "tokens": [_text(token.token_bytes) for token in listed],
        "token_logprobs": [_finite(token.log_prob.log_prob) for token in listed],
        "top_logprobs": [_top(token) for token in listed],
        "text_offset": [token.offset for token in listed],
    }


def _top(token: LoggedToken) -> dict[str, float]:
    """Of tokens with the same text the likeliest stands."""
    own = (token.token_bytes, token.log_prob.log_prob)
    found: dict[str, float] = {}
    for data, value in [*((one.token_bytes, one.log_prob) for one in token.log_prob.top), own]:
        found.setdefault(_text(data), _finite(value))
    return found


def _token(data: bytes, value: float) -> dict[str, Any]:
    return {"token": _text(data), "logprob": _finite(value), "bytes": list(data)}


def _text(data: bytes) -> str:
    """A part of a character has no text: U+FFFD."""
    return data.decode(errors="replace")


def _finite(value: float) -> float:
    return max(value, LEAST)
