"""What stands between the engine shell (model.py) and a runtime.

A runtime takes jobs and feeds each job's sink; the shell knows Triton, the runtime does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class GenerationInput:
    """One prompt and how to continue it. `max_tokens` new tokens at most, at least 1."""

    prompt_ids: list[int]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None


class TokenSink(Protocol):
    """Where one job's tokens go. Called from the runtime's own thread, never after an end."""

    def tokens(self, ids: list[int], finish: FinishReason | None) -> None:
        """New tokens; with a finish reason they are the last ones."""

    def fail(self, message: str) -> None:
        """The job ends with an error."""

    def cancelled(self) -> None:
        """The job ends because someone asked for it."""

    def is_abandoned(self) -> bool:
        """Whether the caller has gone; asked once a step."""


class Job:
    """A generation under way: input, sink, and the flag that ends it at the next step."""

    __slots__ = ("input", "is_cancelled", "request_id", "sink")

    def __init__(self, request_id: str, generation: GenerationInput, sink: TokenSink) -> None:
        self.request_id = request_id
        self.input = generation
        self.sink = sink
        self.is_cancelled = False


class Runtime(Protocol):
    """Generates tokens. `submit` returns at once."""

    def submit(self, job: Job) -> None: ...

    def cancel(self, request_id: str) -> bool:
        """Ends every waiting or running job of that id; whether there was one."""

    def close(self) -> None:
        """Ends all jobs and frees the model."""
