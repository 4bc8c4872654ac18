"""Who asks, and what they may do. Set by the authentication, read by access and the adapters."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from ipaddress import ip_network
from typing import Annotated

from proxy.domain.account_fields import Shown, fields_of


class Scope(str, Enum):
    """What a route needs and a key allows. ADMIN allows administration and METRICS, no more."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    TOKENS = "tokens"
    MODELS = "models"
    ADMIN = "admin"
    METRICS = "metrics"
    KSERVE = "kserve"
    BATCHES = "batches"


ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPatterns:
    """Names of models, with `*` and `?` as in a shell. No patterns allow every model."""

    patterns: tuple[str, ...] = ()

    def allows(self, model: str) -> bool:
        return not self.patterns or any(fnmatchcase(model, each) for each in self.patterns)


# Their meters count whole microseconds, and billionths.
PER_SECOND = Shown(least=1e-6, most=1_000_000, create="")
MONTHLY_BUDGET = Shown(
    least=1e-9, most=1e12, create="In the currency of the models' prices in models.yaml."
)
COUNTED = Shown(least=1, most=10**15, create="")
MONTHLY_TOKENS = replace(COUNTED, create="Input and output.")
BURST = replace(
    COUNTED,
    create="Requests that may come at once beyond the rate per second; default 1.",
)
Count = Annotated[int | None, COUNTED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a tenant, a key or a tenant's use of one model may do. None: without limit."""

    requests_per_second: Annotated[float | None, PER_SECOND] = None
    burst: Annotated[int, BURST] = 1
    requests_per_minute: Count = None
    requests_per_day: Count = None
    input_tokens_per_minute: Count = None
    output_tokens_per_minute: Count = None
    tokens_per_minute: Count = None
    input_tokens_per_day: Count = None
    output_tokens_per_day: Count = None
    tokens_per_day: Count = None
    concurrent_requests: Count = None
    concurrent_streams: Count = None
    monthly_tokens: Annotated[int | None, MONTHLY_TOKENS] = None
    monthly_budget: Annotated[float | None, MONTHLY_BUDGET] = None


NO_LIMITS = Limits()
LIMIT_FIELDS = fields_of(Limits)


def lowest_ceiling(*ceilings: int | None) -> int | None:
    """The lowest priority that is set; None if none is."""
    return min((one for one in ceilings if one is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One authenticated caller.

    key_id: the public part of a key, or how else the caller is known (`jwt:<subject>`,
    `mtls:<name>`). of_models: limits of the tenant's use of single models, by public name.
    weight: of the tenant's share where tenants compete for rows. max_priority: the highest that the
    caller may ask for; None for the operator's setting.
    records: the tenant's requests and answers are recorded for replay.
    tenant_since: when the tenant was created, in ms of Unix time; 0 where the store has none.
    is_shared: callers who have nothing to do with each other have this identity; only their
    addresses tell them apart.
    has_limits: any of its limits is set. Every request asks.
    """

    tenant: str
    key_id: str
    scopes: frozenset[Scope]
    models: ModelPatterns = ModelPatterns()
    tenant_limits: Limits = NO_LIMITS
    key_limits: Limits = NO_LIMITS
    of_models: dict[str, Limits] = field(default_factory=dict)
    weight: float = 1.0
    max_priority: int | None = None
    records: bool = False
    tenant_since: int = 0
    is_shared: bool = False
    has_limits: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        limits = (self.tenant_limits, self.key_limits, *self.of_models.values())
        object.__setattr__(self, "has_limits", any(each != NO_LIMITS for each in limits))

    def may(self, scope: Scope) -> bool:
        is_admin = Scope.ADMIN in self.scopes
        return scope in self.scopes or (scope is Scope.METRICS and is_admin)


TENANT_NAME = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
SHARED_TENANT = "default"
"""The answer to callers that only their addresses tell apart."""


def is_reserved(tenant: str) -> bool:
    """Whether a tenant of this name could be taken for callers that only an address tells apart."""
    try:
        ip_network(tenant, strict=False)
    except ValueError:
        return tenant == SHARED_TENANT
    return True


ANYONE = Caller(tenant=SHARED_TENANT, key_id="anonymous", scopes=ALL_SCOPES, is_shared=True)
"""The caller where there are no keys, and ADMIN=on."""
ANYONE_BUT_ADMINS = replace(ANYONE, scopes=ALL_SCOPES - {Scope.ADMIN})
"""The caller where there are no keys."""

current_caller: ContextVar[Caller] = ContextVar("current_caller", default=ANYONE)
"""Of the request that the running task answers."""


def tenant_of(caller: str) -> tuple[str, str]:
    """The tenant of the running request; its caller alone, where callers share an identity."""
    who = current_caller.get()
    return ("caller", caller) if who.is_shared else ("tenant", who.tenant)
