"""Which deployment of a model gets a request, by what models.yaml says of them.

Rules come first: a header, then the tenant. All others are divided by shares, at random or, where
a model is sticky, by weighted rendezvous hashing: a caller keeps its deployment until it is gone,
and a change of the shares moves only as many callers as it must. (Score -ln(u) / share, the least
wins: C. Schindelhauer and G. Schomaker, "Weighted distributed hash tables", SPAA 2005.)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from hashlib import blake2b

from build_engines.deployments import DeploymentEntry, ShadowEntry
from build_engines.models_file import ModelEntry, RemoteEntry


class Sticky(str, Enum):
    """Whose requests stay with one deployment: nobody's, a user's, a conversation's."""

    NONE = "none"
    USER = "user"
    CONVERSATION = "conversation"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """What models.yaml says about where a public model's requests go."""

    deployments: tuple[DeploymentEntry, ...] = (DeploymentEntry(name="default"),)
    sticky: Sticky = Sticky.NONE
    shadow: ShadowEntry | None = None

    @property
    def header_names(self) -> frozenset[str]:
        """The headers that RouteHints must have, in lower case."""
        rules = (one.canary.header for one in self.deployments)
        return frozenset(rule.name for rule in rules if rule is not None)

    def shares(self, weights: Mapping[str, float] | None = None) -> tuple[float, ...]:
        """The share of each deployment in the requests that no rule chooses for; the sum is 1.

        Args:
            weights: what operators decided, by deployment. They replace weights and percentages;
                a deployment that they do not name gets nothing. Names that the plan does not have
                are ignored, and so are weights without any positive one that it has.
        """
        given = [max((weights or {}).get(one.name, 0.0), 0.0) for one in self.deployments]
        if (total := sum(given)) > 0 and math.isfinite(total):
            return tuple(weight / total for weight in given)
        percents = [(one.canary.percent or 0.0) / 100 for one in self.deployments]
        weights_given = [one.share_weight for one in self.deployments]
        rest, total = max(1 - sum(percents), 0.0), sum(weights_given)
        return tuple(
            percent + (rest * weight / total if total else 0.0)
            for weight, percent in zip(weights_given, percents, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteHints:
    """What a choice may depend on. number: random, from 0 to 1 exclusive.

    conversation: a hash of what the turns of a conversation have in common. headers: at least those
    that the plan names, by lower-case name.
    """

    number: float
    tenant: str = ""
    key: str | None = None
    user: str | None = None
    conversation: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def choose(
    plan: DeploymentPlan,
    hints: RouteHints,
    available: Collection[str],
    weights: Mapping[str, float] | None = None,
) -> DeploymentEntry | None:
    """The deployment for a request; None: none that may get it is available.

    A deployment with a share of 0 gets only what its rules choose, unless it is the only one; a
    standby also what no available deployment has a share of. A rule whose deployment is not
    available chooses nothing.

    Args:
        available: names of deployments.
        weights: see DeploymentPlan.shares.
    """
    shares = [1.0] if len(plan.deployments) == 1 else plan.shares(weights)
    found = zip(plan.deployments, shares, strict=True)
    ready = [(one, share) for one, share in found if one.name in available]
    if chosen := _by_rule([one for one, _ in ready], hints):
        return chosen
    open_ones = [(one, share) for one, share in ready if share > 0]
    open_ones = open_ones or [(one, 1.0) for one, _ in ready if one.standby]
    if len(open_ones) < 2:
        return open_ones[0][0] if open_ones else None
    key = _sticky_key(plan.sticky, hints)
    return _by_number(open_ones, hints.number) if key is None else _by_hash(open_ones, key)


def _by_rule(available: Sequence[DeploymentEntry], hints: RouteHints) -> DeploymentEntry | None:
    for one in available:
        header = one.canary.header
        if header is not None and hints.headers.get(header.name) == header.value:
            return one
    for one in available:
        if any(fnmatchcase(hints.tenant, pattern) for pattern in one.canary.tenants):
            return one
    return None


def _sticky_key(sticky: Sticky, hints: RouteHints) -> bytes | None:
    """What callers keep their deployment by; None: the request does not say.

    A user without a name of its own is the key. Tenants never share one: names of users are theirs.
    """
    if sticky is Sticky.NONE:
        return None
    if sticky is Sticky.CONVERSATION:
        own = hints.conversation
    else:
        user = hints.user if hints.user is not None else hints.key
        own = None if user is None else user.encode("utf-8", "surrogatepass")
    return None if own is None else _joined(hints.tenant.encode("utf-8", "surrogatepass"), own)


def _by_number(
    open_ones: Sequence[tuple[DeploymentEntry, float]], number: float
) -> DeploymentEntry:
    left = number * sum(share for _, share in open_ones)
    for one, share in open_ones:
        left -= share
        if left < 0:
            return one
    return open_ones[-1][0]  # rounding


def _by_hash(open_ones: Sequence[tuple[DeploymentEntry, float]], key: bytes) -> DeploymentEntry:
    return min(open_ones, key=lambda found: _distance(found[0].name, key) / found[1])[0]


def _distance(name: str, key: bytes) -> float:
    """-ln of a number between 0 and 1 that depends on both."""
    digest = blake2b(_joined(name.encode(), key), digest_size=8).digest()
    return -math.log((int.from_bytes(digest, "big") + 1) / (2**64 + 1))


def _joined(head: bytes, tail: bytes) -> bytes:
    """Both in one, so that no other pair has the same result."""
    return len(head).to_bytes(8, "big") + head + tail


DEFAULT_PLAN = DeploymentPlan()


def plan_of(entry: ModelEntry) -> DeploymentPlan:
    deployments = entry.deployments or DEFAULT_PLAN.deployments
    if isinstance(entry, RemoteEntry) and entry.adopt is not None and not entry.deployments:
        deployments = (DeploymentEntry(name="default", model=entry.adopt),)
    return DeploymentPlan(
        deployments=deployments,
        sticky=Sticky(entry.sticky),
        shadow=entry.shadow,
    )
