"""Options of speculative decoding: several tokens per step are proposed, then verified."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from build_engines.section import Section
from build_engines.weights import WeightsField

DraftLength = Annotated[int, Field(ge=1, le=64)]


class Eagle3(Section):
    """A small model proposes `max_draft_len` tokens from the large model's hidden states."""

    method: Literal["eagle3"]
    draft: WeightsField
    max_draft_len: DraftLength = 3


class DraftTarget(Section):
    """A smaller model of the same vocabulary proposes `max_draft_len` tokens."""

    method: Literal["draft_target"]
    draft: WeightsField
    max_draft_len: DraftLength = 4


class Mtp(Section):
    """The model's own multi-token-prediction layers propose; DeepSeek V3 has one."""

    method: Literal["mtp"]
    layers: Annotated[int, Field(ge=1, le=16)] = 1


class NGram(Section):
    """Proposes the tokens that followed the last tokens earlier in the text."""

    method: Literal["ngram"]
    max_draft_len: DraftLength = 4
    max_matching_ngram_size: Annotated[int, Field(ge=1, le=64)] = 2


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


Speculation = Annotated[
    Eagle3 | DraftTarget | Mtp | NGram | Lookahead, Field(discriminator="method")
]
