"""The scripted runtime's section of models.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from build_engines.section import Section

Text = Annotated[str, Field(min_length=1)]


class ScriptedOptions(Section):
    """Scripted text instead of a model's, at a given pace; for tests and benchmarks.

    text: the answer to every prompt. after: other answers, by the words at the prompt's end.
    repeats: the text starts again until the token limit; otherwise the answer ends.
    step_tokens: tokens per stream and step. step_ms: time between steps of all streams; 0: a
    stream's next step follows once its last one has been sent.
    log_prob: of each token. fails_after: the engine fails after this many tokens. dies_after: the
    engine's process dies after this many tokens.
    """

    text: Text
    after: dict[Text, Text] = Field(default_factory=dict)
    repeats: bool = False
    step_tokens: Annotated[int, Field(ge=1, le=1024)] = 1
    step_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.0
    log_prob: Annotated[float, Field(le=0)] = -0.5
    fails_after: Annotated[int, Field(ge=1)] | None = None
    dies_after: Annotated[int, Field(ge=0)] | None = None
