"""What every part of models.yaml is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A field that it does not have is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
