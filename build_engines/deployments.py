"""The deployments of a model in models.yaml: where its requests go, and which go where.

Also the rules between the deployments, pools and fallbacks of one file, for `models_file`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Protocol

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import InitErrorDetails, PydanticCustomError

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
    its part of the requests; by default 1, and 0 for a canary or a standby. standby: gets requests
    while no deployment that has a share is available.
    """

    name: DeploymentName
    pool: PoolName = DEFAULT_POOL
    model: ModelName | None = None
    version: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    weight: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    canary: CanaryEntry = CanaryEntry()
    standby: bool = False

    @property
    def share_weight(self) -> float:
        """weight, or its default."""
        if self.weight is not None:
            return self.weight
        return 0.0 if self.canary.has_rules or self.standby else 1.0


class ShadowEntry(Section):
    """The deployment that gets copies of this percentage of a model's requests."""

    deployment: DeploymentName
    percent: Percent = 100.0


Deployments = Annotated[tuple[DeploymentEntry, ...], Field(max_length=MAX_DEPLOYMENTS)]


MAX_FALLBACKS = 4  # models after the one that was asked for
Where = tuple[str | int, ...]


class RoutedEntry(Protocol):
    """The fields of a model's entry that decide where its requests go."""

    @property
    def deployments(self) -> tuple[DeploymentEntry, ...]: ...
    @property
    def shadow(self) -> ShadowEntry | None: ...
    @property
    def fallback(self) -> str | None: ...
    @property
    def deprecated(self) -> date | None: ...
    @property
    def sunset(self) -> date | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """where: the path of the field inside the model's entry."""

    model: str
    where: Where
    reason: str

    def details(self, runtime: str) -> InitErrorDetails:
        """For an error of the whole file. runtime: the tag of the model's entry."""
        error = PydanticCustomError("deployments", "{reason}", {"reason": self.reason})
        return InitErrorDetails(
            type=error, loc=("models", self.model, runtime, *self.where), input=None
        )


def deployment_problems(
    models: Mapping[str, RoutedEntry], pools: Collection[str]
) -> Iterator[Problem]:
    """Every rule that is broken. pools: the names of those that the file defines."""
    known = {DEFAULT_POOL, *pools}
    for name, entry in models.items():
        found = (
            *_unknown_pools(entry.deployments, known),
            *_taken_names(entry.deployments),
            *_wrong_shares(entry.deployments),
            *_wrong_shadow(entry),
            *_wrong_fallback(name, models),
            *_wrong_dates(entry),
        )
        yield from (Problem(model=name, where=where, reason=reason) for where, reason in found)


def _unknown_pools(
    deployments: tuple[DeploymentEntry, ...], known: Collection[str]
) -> Iterator[tuple[Where, str]]:
    for number, one in enumerate(deployments):
        if one.pool not in known:
            names = ", ".join(sorted(known))
            yield ("deployments", number, "pool"), f"unknown pool {one.pool!r}: there is {names}"


def _taken_names(deployments: tuple[DeploymentEntry, ...]) -> Iterator[tuple[Where, str]]:
    seen = set[str]()
    for number, one in enumerate(deployments):
        if one.name in seen:
            reason = f"{one.name!r} names another deployment of this model already"
            yield ("deployments", number, "name"), reason
        seen.add(one.name)


def _wrong_shares(deployments: tuple[DeploymentEntry, ...]) -> Iterator[tuple[Where, str]]:
    for number, one in enumerate(deployments):
        if one.weight is not None and one.canary.percent is not None:
            reason = "a deployment has a weight or canary.percent, not both"
            yield ("deployments", number, "weight"), reason
        if one.standby and (one.weight or one.canary.has_rules):
            reason = "a standby has no weight and no canary: it gets all requests or none"
            yield ("deployments", number, "standby"), reason
    if not deployments:
        return
    percent = sum(one.canary.percent or 0 for one in deployments)
    if percent > 100:
        yield ("deployments",), f"the percentages of the canaries add up to {percent:g}, over 100"
    if percent < 100 and not any(one.share_weight for one in deployments):
        reason = f"the weights add up to 0, so {100 - percent:g} % of the requests have no place"
        yield ("deployments",), reason


def _wrong_shadow(entry: RoutedEntry) -> Iterator[tuple[Where, str]]:
    if entry.shadow is None:
        return
    where, name = ("shadow", "deployment"), entry.shadow.deployment
    if name not in {one.name for one in entry.deployments}:
        yield where, f"unknown deployment {name!r}: it must be one of this model's deployments"
    elif not any(_has_share(one) for one in entry.deployments if one.name != name):
        yield where, f"{name!r} would be a shadow of itself: no other deployment gets requests"


def _has_share(one: DeploymentEntry) -> bool:
    return one.canary.percent is not None or one.share_weight > 0


def _wrong_fallback(name: str, models: Mapping[str, RoutedEntry]) -> Iterator[tuple[Where, str]]:
    target = models[name].fallback
    if target is not None and target not in models:
        reason = f"unknown model {target!r}: it must be a model of this file, not an alias"
        yield ("fallback",), reason
        return
    chain = [name]
    while target is not None and target in models:
        chain.append(target)
        if target == name:
            yield ("fallback",), f"the fallbacks run in a circle: {' -> '.join(chain)}"
            return
        if len(chain) > MAX_FALLBACKS + 1:
            reason = f"the chain {' -> '.join(chain)} is too long: at most {MAX_FALLBACKS} follow"
            yield ("fallback",), reason
            return
        target = models[target].fallback


EARLIEST = timedelta(days=30)  # from a model's deprecation to its end


def early_sunsets(entries: Mapping[str, RoutedEntry]) -> Iterator[str]:
    """Warnings: callers have little time to move."""
    for name, entry in entries.items():
        if entry.sunset is None or entry.deprecated is None:
            continue
        if (time := entry.sunset - entry.deprecated) < EARLIEST:
            yield f"{name}: sunset is {time.days} days after deprecated, under {EARLIEST.days}"


def _wrong_dates(entry: RoutedEntry) -> Iterator[tuple[Where, str]]:
    if entry.sunset is None:
        return
    if entry.deprecated is not None and entry.sunset < entry.deprecated:
        reason = f"{entry.sunset} is before the date in 'deprecated', {entry.deprecated}"
        yield ("sunset",), reason
