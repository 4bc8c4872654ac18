"""The settings' limits on fields of one request: numbers of elements, choices."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass

from proxy.api.openai.requests.chat_body import ChatCompletionBody
from proxy.api.openai.requests.completion_body import CompletionBody
from proxy.api.openai.requests.tool_bodies import ToolBody
from proxy.domain.errors import ErrorCode, InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldLimits:
    """Numbers of elements, and (`_bytes`) bytes of UTF-8.

    stops: stop strings, and stop token ids. choices: prompts x candidates. logit_bias: also of
    bad_words.
    """

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
            self.check_chat(body.messages, body.tools)
            _check_count("n", body.n or 1, self.choices)
        else:
            self._check_choices(body)

    def check_chat(self, messages: Sized | None, tools: Sequence[ToolBody] | None) -> None:
        """Checks a chat's messages and tools; used for every protocol. Raises InvalidRequest."""
        _check("messages", messages, self.messages)
        _check("tools", tools, self.tools)
        tools_bytes = sum(len(tool.model_dump_json().encode()) for tool in tools or ())
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
        is_messages = param == "messages"
        raise InvalidRequest(
            f"Invalid value for '{param}': at most {most} {of}are allowed, {count} are asked for.",
            code=ErrorCode.INVALID_MESSAGES if is_messages else ErrorCode.INVALID_PARAMETER,
            param=param,
        )
