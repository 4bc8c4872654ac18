"""The store's tables, the same in SQLite and PostgreSQL. `schema` creates them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    false,
    true,
)

from proxy.domain.account_fields import AccountField, Shown
from proxy.domain.identity import NO_LIMITS, Limits, ModelPatterns, Scope
from proxy.domain.key_records import KEY_FIELDS, TENANT_FIELDS

UNLIMITED = asdict(NO_LIMITS)


class UtcTime(TypeDecorator[datetime]):
    """An aware time in UTC, to the microsecond. SQLite stores no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(timezone.utc)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        time: datetime = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return time.astimezone(timezone.utc)


def as_json(value: Any) -> Any:
    """A field of a key or a tenant as JSON's values: of limits, those that are set."""
    match value:
        case Limits():
            limits = asdict(value)
            return {name: limit for name, limit in limits.items() if limit != UNLIMITED[name]}
        case ModelPatterns():
            return list(value.patterns)
        case frozenset():
            return sorted(scope.value for scope in value)
        case dict():
            return {name: as_json(value[name]) for name in sorted(value)}
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
    return value


class JsonOf(TypeDecorator[Any]):
    """A field that is stored `as_json`. read: makes it of JSON's values again."""

    impl = JSON
    cache_ok = True

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.read = read

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return as_json(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return self.read(value)


LIMITS = JsonOf(lambda stored: Limits(**stored))
OF_MODELS = JsonOf(lambda stored: {name: Limits(**limits) for name, limits in stored.items()})
SCOPES = JsonOf(lambda stored: frozenset(map(Scope, stored)))
PATTERNS = JsonOf(lambda stored: ModelPatterns(patterns=tuple(stored)))

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

COLUMN_TYPES: dict[Any, Any] = {
    str: Text,
    bytes: LargeBinary,
    bool: Boolean,
    int: Integer,
    float: Double,
    datetime: UtcTime,
    dict: OF_MODELS,
    frozenset: SCOPES,
    Limits: LIMITS,
    ModelPatterns: PATTERNS,
}
FIRST_VERSION = Shown().since


def _columns(fields: Iterable[AccountField], key: str) -> Iterator[Column[Any]]:
    """In the order in which versions have added them; `info` has the version."""
    for one in sorted(fields, key=lambda each: each.shown.since):
        is_later = one.shown.since > FIRST_VERSION and not one.is_optional
        keys = [ForeignKey("tenants.name")] if one.name == "tenant" else []
        yield Column(
            one.name,
            COLUMN_TYPES[one.kind],
            *keys,
            primary_key=one.name == key,
            nullable=one.is_optional,
            server_default=_stored(one.default) if is_later else None,
            info={"since": one.shown.since},
        )


def _stored(default: bool | float) -> Any:
    """For rows that were written before there was the column."""
    return (true() if default else false()) if isinstance(default, bool) else f"{default:g}"


TENANTS = Table("tenants", METADATA, *_columns(TENANT_FIELDS, "name"))
KEYS = Table("keys", METADATA, *_columns(KEY_FIELDS, "id"), Index(None, "tenant"))
# No foreign keys: usage outlives tenants and keys, and callers with JWTs have no row in `keys`.
USAGE = Table(
    "usage",
    METADATA,
    Column("day", Date, primary_key=True),
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("queue_s", Double, nullable=False),
    Column("cost", Double, nullable=False),
)
# The last batch that each writer has added to `usage`, so that none is added twice.
USAGE_BATCHES = Table(
    "usage_batches",
    METADATA,
    Column("writer", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("at", UtcTime, nullable=False),
)
AUDIT = Table(
    "audit",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", UtcTime, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("before", Text),  # JSON, as text: the hash is of these very characters
    Column("after", Text),
    Column("chain_key", Text, nullable=False),
    Column("mac", Text, nullable=False),
)
DRAINED_ENDPOINTS = Table(
    "drained_endpoints",
    METADATA,
    Column("address", Text, primary_key=True),
    Column("at", UtcTime, nullable=False),
    Column("actor", Text, nullable=False),
)
# history: {"current": weights by deployment or null, "earlier": [the same, the oldest first]}
DEPLOYMENT_WEIGHTS = Table(
    "deployment_weights",
    METADATA,
    Column("model", Text, primary_key=True),
    Column("history", JSON, nullable=False),
)
# The schema's version; the name is of the tool that wrote earlier ones.
VERSION = Table("alembic_version", METADATA, Column("version_num", String(32), primary_key=True))
# One row. Each change of what the generation covers locks it first: they come one after the other.
META = Table(
    "meta",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("generation", BigInteger, nullable=False),
    Column("audit_entries", BigInteger, nullable=False),
    Column("audit_chain_key", Text, nullable=False),
    Column("audit_mac", Text, nullable=False),
    Column("audit_head", Text, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
