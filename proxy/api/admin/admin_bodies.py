"""Bodies of the administration, and what they change. The command line fills the same bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, replace
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    create_model,
    field_validator,
)

from proxy.api.http.typed_route import PLAIN, StrictBody
from proxy.api.openai.field_types import whole
from proxy.domain.account_fields import AccountField, Form
from proxy.domain.identity import (
    LIMIT_FIELDS,
    NO_LIMITS,
    SHARED_TENANT,
    TENANT_NAME,
    Limits,
    ModelPatterns,
    Scope,
    is_reserved,
)
from proxy.domain.key_records import (
    KEY_FIELDS,
    TENANT_CHANGES,
    TENANT_FIELDS,
    KeyRecord,
    TenantRecord,
)

LONGEST_OVERLAP_S = 90 * 86_400

TenantName = Annotated[str, StringConstraints(pattern=TENANT_NAME)]
PlainText = Annotated[str, StringConstraints(pattern=PLAIN, max_length=128)]
Scopes = Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
Patterns = Annotated[list[PlainText], Field(max_length=100)]
USERS_SCOPES = [Scope.CHAT, Scope.COMPLETIONS, Scope.EMBEDDINGS, Scope.TOKENS, Scope.MODELS]
FORMS = ("answer", "create", "change")
M = TypeVar("M", bound=BaseModel)
Record = TypeVar("Record", KeyRecord, TenantRecord)


def with_fields(fields: Iterable[AccountField], form: Form) -> Callable[[type[M]], type[M]]:
    """Gives a body or an answer those fields of a record that it has."""

    def model_of(kind: type[M]) -> type[M]:
        found: dict[str, Any] = {}
        for one in fields:
            if (text := getattr(one.shown, form)) is not None:
                example = one.shown.change_example if form == "change" else one.shown.example
                type_, default = _typed(one, form)
                examples = None if example is None else [example]
                given = Field(**default, description=text or None, examples=examples)
                found[one.name] = (type_, given)
        return create_model(
            kind.__name__, __base__=kind, __module__=kind.__module__, __doc__=kind.__doc__, **found
        )

    return model_of


def _typed(one: AccountField, form: Form) -> tuple[Any, dict[str, Any]]:
    """The field's type in that form, and its default as pydantic's argument, if it has one."""
    shown = one.shown
    if form != "answer" and one.kind in (int, float):
        bounds, default = Field(ge=shown.least, le=shown.most), {"default": None}
        if one.kind is int:
            return Annotated[int, bounds, BeforeValidator(whole)] | None, default
        return Annotated[float, bounds] | None, default
    kinds, default = KINDS.get(one.kind, ({}, {"default": one.default}))
    kind: Any = kinds.get(form, one.kind)
    if form != "answer" and shown.pattern is not None:
        kind = Annotated[str, StringConstraints(pattern=shown.pattern)]
    if form == "change":
        return kind | None, {"default": None}
    return (kind | None if one.is_optional else kind), {} if form == "answer" else default


class AdminBody(StrictBody):
    """In an update, a field that is not given stays as it is; null removes what it set."""


@with_fields(LIMIT_FIELDS, "create")
class LimitsBody(AdminBody):
    """How much may be used. A limit that is null or not given does not hold."""

    def applied(self, limits: Limits) -> Limits:
        """The limits with those that are given here; null: no limit."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        none = {one.name: one.default for one in LIMIT_FIELDS if given.get(one.name, 0) is None}
        return replace(limits, **{**given, **none})


OfModels = Annotated[dict[PlainText, LimitsBody], Field(max_length=1000)]
ChangesOfModels = Annotated[dict[PlainText, LimitsBody | None], Field(max_length=1000)]
# Types of the kinds of fields by form, where they are others than the record's, and the default of
# a body that creates.
KINDS: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {
    Limits: (dict.fromkeys(FORMS, LimitsBody), {"default": LimitsBody()}),
    dict: (
        {"answer": dict[str, LimitsBody], "create": OfModels, "change": ChangesOfModels},
        {"default_factory": dict},
    ),
    frozenset: (
        {"answer": list[Scope], "create": Scopes, "change": Scopes},
        {"default": USERS_SCOPES},
    ),
    ModelPatterns: (
        {"answer": list[str], "create": Patterns, "change": Patterns},
        {"default": []},
    ),
    datetime: ({"create": AwareDatetime, "change": AwareDatetime}, {"default": None}),
    str: ({"create": PlainText, "change": PlainText}, {}),
}


def _read(one: AccountField, given: Any, before: Any) -> Any:
    """The record's value of a body's. before: the value that it changes."""
    if given is None:
        return one.default
    if one.kind is Limits:
        return given.applied(before)
    if one.kind is dict:
        changed = {
            name: body.applied(before.get(name, NO_LIMITS))
            for name, body in given.items()
            if body is not None
        }
        return {name: each for name, each in before.items() if name not in given} | changed
    if one.kind is ModelPatterns:
        return ModelPatterns(patterns=tuple(given))
    return frozenset(given) if one.kind is frozenset else given


class NewBody(AdminBody):
    """Creates a record."""

    def record_fields(self, fields: Iterable[AccountField]) -> dict[str, Any]:
        return {
            one.name: _read(one, getattr(self, one.name), one.default)
            for one in fields
            if one.shown.create is not None
        }


class Changes(AdminBody):
    """Changes a record. Null takes a field's default, if it has one that is no switch."""

    def changed(self, fields: Iterable[AccountField], record: Record) -> Record:
        changes = {}
        for one in fields:
            value = getattr(self, one.name, None)
            can_be_null = one.default is not MISSING and one.kind is not bool
            if one.name in self.model_fields_set and (value is not None or can_be_null):
                changes[one.name] = _read(one, value, getattr(record, one.name))
        return replace(record, **changes)


@with_fields(TENANT_FIELDS, "create")
class TenantBody(NewBody):
    @field_validator("name", check_fields=False)
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if is_reserved(name):
            raise ValueError(f"{SHARED_TENANT!r} and addresses are reserved names")
        return name


@with_fields(TENANT_CHANGES, "change")
class TenantChanges(Changes):
    pass


@with_fields(KEY_FIELDS, "create")
class KeyBody(NewBody):
    @field_validator("expires_at", check_fields=False)
    @classmethod
    def _in_future(cls, at: datetime | None) -> datetime | None:
        if at is not None and at <= datetime.now(timezone.utc):
            raise ValueError("it is in the past")
        return _in_utc(at)


@with_fields(KEY_FIELDS, "change")
class KeyChanges(Changes):
    @field_validator("expires_at", check_fields=False)
    @classmethod
    def _utc(cls, at: datetime | None) -> datetime | None:
        return _in_utc(at)


class Rotation(AdminBody):
    overlap_s: Annotated[int, Field(ge=0, le=LONGEST_OVERLAP_S), BeforeValidator(whole)] = Field(
        86_400,
        description="Seconds for which the key from before is accepted, too.",
        examples=[3600],
    )

    @property
    def overlap(self) -> timedelta:
        return timedelta(seconds=self.overlap_s)


def _in_utc(at: datetime | None) -> datetime | None:
    if at is None:
        return None
    try:
        return at.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError("in UTC, it is outside the years 1 to 9999") from None
