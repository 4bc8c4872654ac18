"""The limits of a model's requests in models.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from build_engines.section import Section


class LimitsEntry(Section):
    """Limits of one request; a larger request is refused. The settings may be lower.

    max_tokens: per choice; cuts the default, too. prompt_tokens: per prompt.
    """

    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    best_of: Annotated[int, Field(ge=1)] | None = None
    prompt_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
