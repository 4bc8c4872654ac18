"""A port: the deployments that models.yaml names, for operators who change their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredDeployment:
    """One place that serves a public model. version: None is Triton's.

    weight, percent: of models.yaml; the percentage counts before weights divide the rest.
    """

    model: str
    name: str
    pool: str
    triton_model: str
    version: str | None
    weight: float
    percent: float = 0.0


class ConfiguredDeployments(Protocol):
    def deployments(self) -> tuple[ConfiguredDeployment, ...]:
        """The deployments of every public model, in the order of models.yaml."""
        ...
