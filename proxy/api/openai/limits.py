"""How much one request may hold, beside its bytes."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass

from proxy.api.openai.bodies import ChatCompletionBody, CompletionBody
from proxy.domain.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Numbers of elements, and bytes of UTF-8. `choices`: prompts times the candidates of each."""

    stops: int = 16
    stop_bytes: int = 4096
    messages: int = 2048
    logit_bias: int = 1024
    allowed_token_ids: int = 16_384
    choices: int = 128
    tools: int = 128
    tools_bytes: int = 256_000

    def check(self, body: ChatCompletionBody | CompletionBody) -> None:
        """Raises InvalidRequest."""
        _check("stop", body.stops, self.stops)
        stop_bytes = sum(len(stop.encode()) for stop in body.stops)
        _check_count("stop", stop_bytes, self.stop_bytes, of="bytes ")
        _check("stop_token_ids", body.stop_token_ids, self.stops)
        _check("bad_words", body.bad_words, self.logit_bias)
        _check("logit_bias", body.logit_bias, self.logit_bias)
        _check("allowed_token_ids", body.allowed_token_ids, self.allowed_token_ids)
        if isinstance(body, ChatCompletionBody):
            _check("messages", body.messages, self.messages)
            _check_count("n", body.n or 1, self.choices)
            self._check_tools(body)
        else:
            self._check_choices(body)

    def _check_tools(self, body: ChatCompletionBody) -> None:
        _check("tools", body.tools, self.tools)
        tools_bytes = sum(len(tool.model_dump_json().encode()) for tool in body.tools or ())
        _check_count("tools", tools_bytes, self.tools_bytes, of="bytes ")

    def _check_choices(self, body: CompletionBody) -> None:
        first = body.prompt[0] if body.prompt else ""
        is_one = isinstance(body.prompt, str) or isinstance(first, int)
        candidates = max(body.n or 1, body.best_of or 1)
        _check_count("prompt", candidates * (1 if is_one else len(body.prompt)), self.choices)


def _check(param: str, given: Sized | None, most: int) -> None:
    _check_count(param, 0 if given is None else len(given), most)


def _check_count(param: str, count: int, most: int, *, of: str = "") -> None:
    if count > most:
        raise InvalidRequest(
            f"Invalid value for '{param}': at most {most} {of}are allowed, {count} are asked for.",
            code="invalid_messages" if param == "messages" else "invalid_parameter",
            param=param,
        )
