"""The deployments of a model in models.yaml: where its requests go, and which go where."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from build_engines.pool_entry import DEFAULT_POOL, PoolName
from build_engines.section import ModelName, Section

MAX_DEPLOYMENTS = 32  # of one model: each is hashed for a request of a sticky caller
# Headers with secrets, or that a front or HTTP itself writes
REFUSED_HEADERS = frozenset({"authorization", "cookie", "host", "content-length", "x-api-key"})

DeploymentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Percent = Annotated[float, Field(gt=0, le=100)]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=128)]


def _header_name(name: str) -> str:
    if name.lower() in REFUSED_HEADERS:
        raise ValueError(f"{name!r} may not choose a deployment: take a header of your own")
    return name.lower()


HeaderName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_\-]{1,64}$"), AfterValidator(_header_name)
]


class HeaderRule(Section):
    """Requests whose header `name` (any case) has exactly this value."""

    name: HeaderName
    value: Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,256}$")]


class CanaryEntry(Section):
    """Requests that a deployment gets before the weights divide the others.

    percent: of the requests that no rule has chosen a deployment for. tenants: patterns such as
    `team-*`, in which case matters.
    """

    percent: Percent | None = None
    tenants: Annotated[tuple[Pattern, ...], Field(max_length=256)] = ()
    header: HeaderRule | None = None

    @property
    def has_rules(self) -> bool:
        return self != CanaryEntry()


class DeploymentEntry(Section):
    """One deployment. model: Triton's name of it; by default the public name.

    version: of the Triton model; by default the one that Triton's version policy serves. weight:
    its part of the requests; by default 1, and 0 for a canary.
    """

    name: DeploymentName
    pool: PoolName = DEFAULT_POOL
    model: ModelName | None = None
    version: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    weight: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    canary: CanaryEntry = CanaryEntry()

    @property
    def share_weight(self) -> float:
        """weight, or its default."""
        if self.weight is not None:
            return self.weight
        return 0.0 if self.canary.has_rules else 1.0


class ShadowEntry(Section):
    """The deployment that gets copies of this percentage of a model's requests."""

    deployment: DeploymentName
    percent: Percent = 100.0


Deployments = Annotated[tuple[DeploymentEntry, ...], Field(max_length=MAX_DEPLOYMENTS)]
