"""Bodies of the administration, and what they change. The command line fills the same bodies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    Field,
    StringConstraints,
    field_validator,
)

from proxy.api.http.typed_route import PLAIN, StrictBody
from proxy.api.openai.field_types import INT32_MAX, whole
from proxy.domain.identity import (
    NO_LIMITS,
    SHARED_TENANT,
    TENANT_NAME,
    Limits,
    ModelPatterns,
    Scope,
    is_reserved,
)
from proxy.domain.key_records import KeyRecord, TenantRecord

MOST = 10**15
LONGEST_OVERLAP_S = 90 * 86_400
LEAST_WEIGHT, MOST_WEIGHT = 0.01, 1000.0

TenantName = Annotated[str, StringConstraints(pattern=TENANT_NAME)]
PlainText = Annotated[str, StringConstraints(pattern=PLAIN, max_length=128)]
Rate = Annotated[float, Field(ge=1e-6, le=1_000_000)]  # its meter counts whole microseconds
Count = Annotated[int, Field(ge=1, le=MOST), BeforeValidator(whole)]
Money = Annotated[float, Field(ge=1e-9, le=1e12)]  # its meter counts billionths
Share = Annotated[float, Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT)]
Weight = Annotated[
    Share | None,
    Field(description="Of its share where tenants compete for a model; default 1.", examples=[3.0]),
]
Priority = Annotated[int, Field(ge=-INT32_MAX, le=INT32_MAX), BeforeValidator(whole)]
MaxPriority = Annotated[
    Priority | None,
    Field(
        description="The highest priority that its requests get; higher numbers go first. Null: no "
        "ceiling of its own.",
        examples=[1],
    ),
]
Records = Annotated[
    bool,
    Field(
        description="Whether its requests and answers are recorded for replay, where the proxy has "
        "a folder for them."
    ),
]
Scopes = Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
Patterns = Annotated[list[PlainText], Field(max_length=100)]

# For the OpenAPI document, which composes examples of those of single fields.
EXAMPLE = {"requests_per_minute": 60, "tokens_per_day": 1_000_000}
EXAMPLE_OF_MODELS = {"demo": {"concurrent_requests": 4}}
USERS_SCOPES = [Scope.CHAT, Scope.COMPLETIONS, Scope.EMBEDDINGS, Scope.TOKENS, Scope.MODELS]


class AdminBody(StrictBody):
    """In an update, a field that is not given stays as it is; null removes what it set."""


class LimitsBody(AdminBody):
    """How much may be used. A limit that is null or not given does not hold."""

    requests_per_second: Rate | None = None
    burst: Count | None = Field(
        default=None,
        description="Requests that may come at once beyond the rate per second; default 1.",
    )
    requests_per_minute: Count | None = None
    requests_per_day: Count | None = None
    input_tokens_per_minute: Count | None = None
    output_tokens_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    input_tokens_per_day: Count | None = None
    output_tokens_per_day: Count | None = None
    tokens_per_day: Count | None = None
    concurrent_requests: Count | None = None
    concurrent_streams: Count | None = None
    monthly_tokens: Count | None = Field(default=None, description="Input and output.")
    monthly_budget: Money | None = Field(
        default=None, description="In the currency of the models' prices in models.yaml."
    )

    def applied(self, limits: Limits) -> Limits:
        """The limits with those that are given here; null: no limit."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        defaults = {field.name: field.default for field in fields(Limits)}
        none = {name: defaults[name] for name, value in given.items() if value is None}
        return replace(limits, **{**given, **none})


OfModels = Annotated[dict[PlainText, LimitsBody], Field(max_length=1000)]
ChangesOfModels = Annotated[dict[PlainText, LimitsBody | None], Field(max_length=1000)]


class TenantBody(AdminBody):
    name: TenantName = Field(description="Letters, digits and `._:@-`.", examples=["acme"])
    limits: LimitsBody = Field(LimitsBody(), examples=[EXAMPLE])
    of_models: OfModels = Field(
        default_factory=dict,
        description="Limits of its use of single models, by public name.",
        examples=[EXAMPLE_OF_MODELS],
    )
    weight: Weight = None
    max_priority: MaxPriority = None
    records: Records = False

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if is_reserved(name):
            raise ValueError(f"{SHARED_TENANT!r} and addresses are reserved names")
        return name

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of Tenants.create, besides actor and name."""
        of_models = {name: body.applied(NO_LIMITS) for name, body in self.of_models.items()}
        return {
            "limits": self.limits.applied(NO_LIMITS),
            "of_models": of_models,
            "weight": _weight(self.weight),
            "max_priority": self.max_priority,
            "records": self.records,
        }


class TenantChanges(AdminBody):
    limits: LimitsBody | None = Field(
        None, description="Null removes all limits.", examples=[{"tokens_per_day": 2_000_000}]
    )
    of_models: ChangesOfModels | None = Field(
        default=None,
        description="A model with null loses its limits; null removes those of all models.",
    )
    is_active: bool | None = Field(
        default=None, description="Keys of a tenant that is not active are refused."
    )
    weight: Weight = None
    max_priority: MaxPriority = None
    records: Records | None = None

    def applied(self, tenant: TenantRecord) -> TenantRecord:
        if "limits" in self.model_fields_set:
            tenant = replace(tenant, limits=_applied(self.limits, tenant.limits))
        if "of_models" in self.model_fields_set:
            tenant = replace(tenant, of_models=_of_models(self.of_models, tenant.of_models))
        if self.is_active is not None:
            tenant = replace(tenant, is_active=self.is_active)
        if "weight" in self.model_fields_set:
            tenant = replace(tenant, weight=_weight(self.weight))
        if "max_priority" in self.model_fields_set:
            tenant = replace(tenant, max_priority=self.max_priority)
        if self.records is not None:
            tenant = replace(tenant, records=self.records)
        return tenant


class KeyBody(AdminBody):
    tenant: TenantName = Field(examples=["acme"])
    name: PlainText = Field(description="What people call the key.", examples=["batch jobs"])
    scopes: Scopes = Field(
        default=USERS_SCOPES,
        description="What it may do. `admin` opens `/admin/…` and `/metrics` only.",
        examples=[["chat", "models"]],
    )
    models: Patterns = Field(
        default=[],
        description="Names of models that it may use, with `*` and `?` as in a shell; empty: all.",
        examples=[["llama-*"]],
    )
    limits: LimitsBody = LimitsBody()
    max_priority: MaxPriority = None
    expires_at: AwareDatetime | None = Field(None, description="Null: never.")

    @field_validator("expires_at")
    @classmethod
    def _in_future(cls, at: datetime | None) -> datetime | None:
        if at is not None and at <= datetime.now(timezone.utc):
            raise ValueError("it is in the past")
        return _in_utc(at)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of Keys.create, besides actor and tenant."""
        return {
            "name": self.name,
            "scopes": frozenset(self.scopes),
            "models": ModelPatterns(patterns=tuple(self.models)),
            "limits": self.limits.applied(NO_LIMITS),
            "max_priority": self.max_priority,
            "expires_at": self.expires_at,
        }


class KeyChanges(AdminBody):
    name: PlainText | None = Field(None, examples=["nightly batch"])
    scopes: Scopes | None = None
    models: Patterns | None = Field(None, description="Null or empty: all models.")
    limits: LimitsBody | None = Field(None, description="Null removes all limits.")
    max_priority: MaxPriority = None
    expires_at: AwareDatetime | None = Field(
        default=None, description="Null: never. A time in the past ends the key now."
    )

    @field_validator("expires_at")
    @classmethod
    def _utc(cls, at: datetime | None) -> datetime | None:
        return _in_utc(at)

    def applied(self, key: KeyRecord) -> KeyRecord:
        given = self.model_fields_set
        if self.name is not None:
            key = replace(key, name=self.name)
        if self.scopes is not None:
            key = replace(key, scopes=frozenset(self.scopes))
        if "models" in given:
            key = replace(key, models=ModelPatterns(patterns=tuple(self.models or ())))
        if "limits" in given:
            key = replace(key, limits=_applied(self.limits, key.limits))
        if "max_priority" in given:
            key = replace(key, max_priority=self.max_priority)
        return replace(key, expires_at=self.expires_at) if "expires_at" in given else key


class Rotation(AdminBody):
    overlap_s: Annotated[int, Field(ge=0, le=LONGEST_OVERLAP_S), BeforeValidator(whole)] = Field(
        86_400,
        description="Seconds for which the key from before is accepted, too.",
        examples=[3600],
    )

    @property
    def overlap(self) -> timedelta:
        return timedelta(seconds=self.overlap_s)


def _weight(given: float | None) -> float:
    return 1.0 if given is None else given


def _applied(body: LimitsBody | None, limits: Limits) -> Limits:
    return NO_LIMITS if body is None else body.applied(limits)


def _of_models(
    changes: Mapping[str, LimitsBody | None] | None, before: Mapping[str, Limits]
) -> dict[str, Limits]:
    if changes is None:
        return {}
    changed = {
        name: body.applied(before.get(name, NO_LIMITS))
        for name, body in changes.items()
        if body is not None
    }
    kept = {name: limits for name, limits in before.items() if name not in changes}
    return {**kept, **changed}


def _in_utc(at: datetime | None) -> datetime | None:
    if at is None:
        return None
    try:
        return at.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError("in UTC, it is outside the years 1 to 9999") from None
