"""Puts the prompt before its answer, for a caller that asked to echo it. Used by `choice`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from proxy.domain.events import LoggedToken
from proxy.domain.output import TokenDelta
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.generation.choice.answer_text import TextDecoder


class PromptEcho:
    """The engine sends the prompt's tokens where more than its text is wanted: a long prompt's in
    several deltas.

    Args:
        specials: special tokens that have text here, by id; the deltas then have token ids.
    """

    __slots__ = ("_comes_in_tokens", "_decoder", "_left", "_logged", "_specials", "_text", "length")

    def __init__(
        self,
        request: GenerationRequest,
        *,
        strips_leading_space: bool,
        specials: Mapping[int, bytes],
    ) -> None:
        self._comes_in_tokens = request.echoes_tokens
        self._decoder = TextDecoder(strips_leading_space=strips_leading_space)
        self._left = 0  # tokens of the prompt that are still to come
        self._specials = specials
        self._logged: list[LoggedToken] = []
        is_known = request.echoes_prompt and not request.echoes_tokens
        prompt = request.prompt
        text = prompt.text if is_known and isinstance(prompt, TextPrompt) else ""
        self._text = [text]  # a delta may have tens of thousands of tokens
        self.length = len(text)  # in characters, of the prompt so far

    def split(self, delta: TokenDelta) -> TokenDelta:
        """The answer's part of a delta; what is before it is kept."""
        if self._comes_in_tokens and delta.prompt_tokens is not None:  # a stream's first
            self._left = delta.prompt_tokens
        if not self._left:
            return delta
        count = min(self._left, len(delta.token_bytes))
        for at, data in enumerate(delta.token_bytes[:count]):
            if self._specials and not data:
                data = self._specials.get(delta.token_ids[at], data)
            if delta.log_probs:
                self._logged.append(LoggedToken(data, delta.log_probs[at], self.length))
            self._add(self._decoder.push(data))
        self._left -= count
        if not self._left:
            self._add(self._decoder.flush())
        return replace(
            delta,
            token_bytes=delta.token_bytes[count:],
            token_ids=delta.token_ids[count:],
            log_probs=delta.log_probs[count:],
        )

    def _add(self, text: str) -> None:
        self._text.append(text)
        self.length += len(text)

    def take(self) -> tuple[str, list[LoggedToken]]:
        """What has come since the last time."""
        text, logged = "".join(self._text), self._logged
        self._text.clear()
        self._logged = []
        return text, logged
