"""The base of every section of models.yaml: frozen, and refuses unknown fields."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    ValidationInfo,
)

ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]

# Printable ASCII that a Link header can have between < and >
HttpUrlText = Annotated[str, StringConstraints(pattern=r"^https?://[!#-;=?-~]{1,2000}$")]


def _yaml_off(value: Any) -> Any:
    """YAML 1.1 reads an unquoted `off` as false."""
    return "off" if value is False else value


Off = BeforeValidator(_yaml_off)


def base_of(info: ValidationInfo) -> Path:
    """The folder of the models.yaml that is read. Relative paths in it start there."""
    return Path((info.context or {}).get("base", "."))


def _from_base(path: Path, info: ValidationInfo) -> Path:
    return base_of(info) / path.expanduser()


LocalPath = Annotated[Path, AfterValidator(_from_base)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
