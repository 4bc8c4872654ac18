"""The base of every section of models.yaml: frozen, and refuses unknown fields."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints

ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]

# Printable ASCII that a Link header can have between < and >
HttpUrlText = Annotated[str, StringConstraints(pattern=r"^https?://[!#-;=?-~]{1,2000}$")]


def _yaml_off(value: Any) -> Any:
    """YAML 1.1 reads an unquoted `off` as false."""
    return "off" if value is False else value


Off = BeforeValidator(_yaml_off)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
