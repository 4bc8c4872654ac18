"""What a model of the scripted runtime says, in models.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from triton_openai.build_engines.section import Section

Text = Annotated[str, Field(min_length=1)]


class ScriptedOptions(Section):
    """For tests and benchmarks: given text in a model's place, at a given pace.

    text: what every prompt is answered with. after: what answers a prompt that ends with these
    words instead. repeats: it goes on from the beginning, up to the token limit; else it ends.
    step_tokens: tokens of a stream in one step. step_ms: from one step of all streams to the next;
    0: a stream's next step comes when all of its last one has been sent.
    log_prob: each token's own. fails_after: so many tokens, then the engine fails. dies_after: so
    many tokens, then the engine's process dies.
    """

    text: Text
    after: dict[Text, Text] = Field(default_factory=dict)
    repeats: bool = False
    step_tokens: Annotated[int, Field(ge=1, le=1024)] = 1
    step_ms: Annotated[float, Field(ge=0, le=60_000)] = 0.0
    log_prob: Annotated[float, Field(le=0)] = -0.5
    fails_after: Annotated[int, Field(ge=1)] | None = None
    dies_after: Annotated[int, Field(ge=0)] | None = None
