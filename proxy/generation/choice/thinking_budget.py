"""How long a model may think before it answers. Used by choice."""

from __future__ import annotations

from triton_openai.proxy.generation.choice.usage_counter import Tally
from triton_openai.proxy.syntax.output_parser import OutputParser


class Thought:
    """`budget`: in tokens; None, or no parser that finds reasoning, is no bound.

    With a bound the answer's raw bytes are kept, for the prompt that it goes on behind.
    """

    __slots__ = ("_budget", "_parser", "_raw", "_tally")

    def __init__(self, budget: int | None, parser: OutputParser | None, tally: Tally) -> None:
        self._budget = budget
        self._parser = parser
        self._tally = tally
        self._raw = bytearray()

    def keep(self, data: bytes) -> None:
        """One more token of the answer."""
        if self._budget is not None:
            self._raw += data

    @property
    def is_enough(self) -> bool:
        """Whether the budget is spent, and the model still thinks."""
        if self._budget is None or self._parser is None:
            return False
        return self._parser.is_thinking and self._tally.reasoning >= self._budget

    def ended(self, closing: str) -> str:
        """All of the answer so far, as the model would have written it with this end."""
        self.keep(closing.encode())
        return self._raw.decode(errors="replace")
