"""Limits how long a model thinks before it answers. Used by `choice`."""

from __future__ import annotations

from proxy.generation.choice.usage_counter import UsageCounter
from proxy.language.syntax.output_parser import OutputParser


class ThinkingBudget:
    """`budget`: in tokens; None for no limit. Without a parser that finds reasoning there is none.

    With a limit the answer's raw bytes are kept, for the prompt of its continuation.
    """

    __slots__ = ("_budget", "_counter", "_parser", "_raw")

    def __init__(
        self, budget: int | None, parser: OutputParser | None, counter: UsageCounter
    ) -> None:
        self._budget = budget
        self._parser = parser
        self._counter = counter
        self._raw = bytearray()

    def keep(self, data: bytes) -> None:
        """One more token of the answer."""
        self._raw += data

    @property
    def is_spent(self) -> bool:
        """Whether the budget is spent, and the model still thinks."""
        if self._budget is None or self._parser is None:
            return False
        return self._parser.is_thinking and self._counter.reasoning >= self._budget

    def ended(self, closing: str) -> str:
        """The text of the whole answer so far, which `closing` ends."""
        self.keep(closing.encode())
        return self._raw.decode(errors="replace")
