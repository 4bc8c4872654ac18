"""The prompt in front of its answer, where the caller wants it there. Used by choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from proxy.domain.events import LoggedToken
from proxy.domain.output import TokenDelta
from proxy.domain.request import GenerationRequest, TextPrompt
from proxy.text import TextDecoder


class PromptEcho:
    """The engine sends the prompt's tokens where more than its text is wanted.

    Args:
        specials: special tokens that have text here, by id; the deltas then have token ids.
    """

    __slots__ = ("_comes_in_tokens", "_logged", "_specials", "_strips_space", "_text")

    def __init__(
        self,
        request: GenerationRequest,
        *,
        strips_leading_space: bool,
        specials: Mapping[int, bytes],
    ) -> None:
        self._comes_in_tokens = request.echoes_tokens
        self._strips_space = strips_leading_space
        self._specials = specials
        self._logged: list[LoggedToken] = []
        is_known = request.echoes_prompt and not request.echoes_tokens
        prompt = request.prompt
        self._text = prompt.text if is_known and isinstance(prompt, TextPrompt) else ""

    @property
    def length(self) -> int:
        """In characters, of what `take` will give."""
        return len(self._text)

    def split(self, delta: TokenDelta) -> TokenDelta:
        """The answer's part of a stream's first delta; what is before it is kept."""
        if not self._comes_in_tokens:
            return delta
        count = delta.prompt_tokens or 0
        decoder = TextDecoder(strips_leading_space=self._strips_space)
        for at, data in enumerate(delta.token_bytes[:count]):
            if self._specials and not data:
                data = self._specials.get(delta.token_ids[at], data)
            if delta.log_probs:
                self._logged.append(LoggedToken(data, delta.log_probs[at], len(self._text)))
            self._text += decoder.push(data)
        self._text += decoder.flush()
        return replace(
            delta,
            token_bytes=delta.token_bytes[count:],
            token_ids=delta.token_ids[count:],
            log_probs=delta.log_probs[count:],
        )

    def take(self) -> tuple[str, list[LoggedToken]]:
        """Once; then there is nothing more of it."""
        taken = self._text, self._logged
        self._text, self._logged = "", []
        return taken
