"""What only engine plans have in the `gpu:` section."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from build_engines.section import Off, Section

LORAS = 4  # the adapters that a plan holds, on the host and on a GPU: LlmArgs' default


class Lookahead(Section):
    """Jacobi decoding; needs no draft model."""

    method: Literal["lookahead"]
    window: Annotated[int, Field(ge=2, le=64)] = 4
    ngram: Annotated[int, Field(ge=2, le=64)] = 3
    verification: Annotated[int, Field(ge=1, le=64)] = 4

    @property
    def max_draft_len(self) -> int:
        """The formula of upstream's examples/lookahead: 83 tokens for (7, 7, 7)."""
        return (self.ngram - 2) + (self.window - 1 + self.verification) * (self.ngram - 1)


class Plan(Section):
    """Options of engine plans only. workers: how many ranks are built at a time, one GPU each."""

    # None: auto where the type of the weights allows it
    gemm_plugin: Annotated[Literal["auto", "off"], Off] | None = None
    reduce_fusion: bool = False
    workers: Annotated[int, Field(ge=1, le=1024)] = 1
