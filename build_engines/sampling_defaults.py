"""The default sampling of a model in models.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from build_engines.section import Section


class SamplingDefaults(Section):
    """Sampling parameters for requests that do not set them."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None

    def or_else(self, temperature: float | None, max_tokens: int | None) -> SamplingDefaults:
        """These defaults, completed by the given values."""
        given = {"temperature": temperature, "max_tokens": max_tokens}
        missing = {name: value for name, value in given.items() if getattr(self, name) is None}
        return self.model_copy(update=missing)
