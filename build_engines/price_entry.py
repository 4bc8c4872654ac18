"""The price of a model in models.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from build_engines.section import Section

PerMillion = Annotated[float, Field(ge=0, le=1_000_000)]


class PriceEntry(Section):
    """What a million tokens cost, in any currency: budgets of tenants and keys are in the same.

    cached_input: prompt tokens that the engine took from its cache; default: input.
    """

    input: PerMillion
    cached_input: PerMillion | None = None
    output: PerMillion
