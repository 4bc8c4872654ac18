"""The work that this process has sent to an endpoint and that has not ended, in tokens."""

from __future__ import annotations

from collections.abc import Sequence

CHARACTERS_A_TOKEN = 4.0  # English text with the usual vocabularies; corrected by what is observed
OUTPUT_TOKENS = 256.0  # expected of a model that has not finished anything yet
WEIGHT_OF_NEWEST = 0.05  # the running means then cover about the last twenty requests


class Outstanding:
    """Of one endpoint. All operations take constant time."""

    __slots__ = ("streams", "tokens")

    def __init__(self) -> None:
        self.streams = 0
        self.tokens = 0

    def add(self, *, prompt_tokens: int, output_tokens: int) -> Work:
        """Counts a stream. Release the result when the stream ends."""
        work = Work(self, prompt_tokens, output_tokens)
        self.streams += 1
        self.tokens += work.tokens
        return work


class Work:
    """One stream's part of an endpoint's outstanding work."""

    __slots__ = ("_output_tokens", "_outstanding", "_prompt_tokens")

    def __init__(self, outstanding: Outstanding, prompt_tokens: int, output_tokens: int) -> None:
        self._outstanding: Outstanding | None = outstanding
        self._prompt_tokens = max(0, prompt_tokens)
        self._output_tokens = max(0, output_tokens)

    @property
    def tokens(self) -> int:
        return self._prompt_tokens + self._output_tokens

    def set_prompt_tokens(self, exact: int) -> None:
        """Replaces the estimate once the tokenizer has counted. Ignored after the release."""
        if self._outstanding is not None:
            self._outstanding.tokens += max(0, exact) - self._prompt_tokens
            self._prompt_tokens = max(0, exact)

    def release(self) -> None:
        """Ends it. Further calls change nothing."""
        outstanding, self._outstanding = self._outstanding, None
        if outstanding is not None:
            outstanding.streams -= 1
            outstanding.tokens -= self.tokens


class TokenEstimates:
    """What a request to one model will probably take. Learns from requests that have ended."""

    __slots__ = ("_characters_a_token", "_output_tokens")

    def __init__(self) -> None:
        self._characters_a_token = CHARACTERS_A_TOKEN
        self._output_tokens = OUTPUT_TOKENS

    def prompt_tokens(self, prompt: str | Sequence[int]) -> int:
        """Exact for ids. The length of text counts in characters, which is O(1)."""
        if not isinstance(prompt, str):
            return len(prompt)
        return int(len(prompt) / self._characters_a_token) + 1

    def output_tokens(self, max_tokens: int | None) -> int:
        """The mean of recent outputs, or `max_tokens` if that is less."""
        expected = round(self._output_tokens)
        return expected if max_tokens is None else min(max(0, max_tokens), expected)

    def observe(self, *, text_length: int | None, prompt_tokens: int, output_tokens: int) -> None:
        """Call it when a stream ended by itself. text_length: characters; None for a prompt of ids.

        A stream that was cancelled or failed says nothing of the length of answers.
        """
        self._output_tokens = _moved(self._output_tokens, max(0, output_tokens))
        if text_length and prompt_tokens > 0:
            ratio = min(max(text_length / prompt_tokens, 0.1), 100.0)
            self._characters_a_token = _moved(self._characters_a_token, ratio)


def _moved(mean: float, newest: float) -> float:
    return mean + WEIGHT_OF_NEWEST * (newest - mean)
