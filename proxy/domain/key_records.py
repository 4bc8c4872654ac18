"""API keys and tenants: the one table of their fields, and the port that reads them.

The store implements KeySource. The authentication reads it, and turns records into a Caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Protocol

from proxy.domain.account_fields import Shown, fields_of
from proxy.domain.identity import LIMIT_FIELDS, NO_LIMITS, TENANT_NAME, Limits, ModelPatterns, Scope

EVERY_MODEL = ModelPatterns()
HIGHEST = 2**31 - 1
SOME_LIMITS = {"requests_per_minute": 60, "tokens_per_day": 1_000_000}
SCOPES = ["chat", "models"]
LIMITS = Shown(
    answer="Those that are set.",
    create="",
    change="Null removes all limits.",
    flag="--limit",
    help="Such as requests_per_minute=60; `none` removes it. May be repeated. Names: "
    f"{', '.join(one.name for one in LIMIT_FIELDS)}.",
)
SHARE = "Of its share where tenants compete for a model"
PRIORITY = "The highest priority that its requests get;"
BODY_PRIORITY = f"{PRIORITY} higher numbers go first. Null: no ceiling of its own."
RECORDS = "Whether its requests and answers are recorded for replay"
BODY_RECORDS = f"{RECORDS}, where the proxy has a folder for them."
Moment = Annotated[datetime, Shown(answer="", example="2026-03-01T12:00:00Z")]
MaxPriority = Annotated[
    int | None,
    Shown(
        since="0003",
        answer=f"{PRIORITY} null: no ceiling of its own.",
        create=BODY_PRIORITY,
        change=BODY_PRIORITY,
        example=1,
        change_example=1,
        flag="--max-priority",
        help=f"{PRIORITY} higher numbers go first. `none` for no ceiling of its own.",
        least=-HIGHEST,
        most=HIGHEST,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One API key `sk-<id>-<secret>`, without its secret. All times are aware, in UTC.

    digest: HMAC-SHA256 of the whole key, with the pepper as its key. overlap_digest: the digest
    before a rotation, accepted until overlap_until.
    """

    id: Annotated[
        str, Shown(answer="The public part of the key: `sk-<id>-…`.", example="k3x9q27bt0mz")
    ]
    tenant: Annotated[str, Shown(answer="", create="", example="acme", pattern=TENANT_NAME)]
    name: Annotated[
        str,
        Shown(
            answer="",
            create="What people call the key.",
            change="",
            example="batch jobs",
            change_example="nightly batch",
        ),
    ]
    digest: bytes
    scopes: Annotated[
        frozenset[Scope],
        Shown(
            answer="",
            create="What it may do. `admin` opens `/admin/…` and `/metrics` only.",
            change="",
            example=SCOPES,
            flag="--scope",
            help="May be repeated: chat, completions, embeddings, tokens, models, metrics, kserve, "
            "batches, admin. Default: the first five.",
        ),
    ]
    models: Annotated[
        ModelPatterns,
        Shown(
            answer="",
            create="Names of models that it may use, with `*` and `?` as in a shell; empty: all.",
            change="Null or empty: all models.",
            example=["llama-*"],
            flag="--model",
            help="A model it may use, with * and ?; may be repeated.",
        ),
    ] = EVERY_MODEL
    limits: Annotated[Limits, LIMITS] = NO_LIMITS
    max_priority: MaxPriority = None
    created_at: Moment
    expires_at: Annotated[
        datetime | None,
        Shown(
            answer="",
            create="Null: never.",
            change="Null: never. A time in the past ends the key now.",
            flag="--expires",
            help="Such as 90d, 12h, 2027-01-31T12:00:00Z, or `never`.",
        ),
    ] = None
    revoked_at: Annotated[datetime | None, Shown(answer="")] = None
    overlap_digest: bytes | None = None
    overlap_until: Annotated[
        datetime | None,
        Shown(answer="Until when the key from before a rotation is accepted, too."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRecord:
    name: Annotated[
        str,
        Shown(
            answer="", create="Letters, digits and `._:@-`.", example="acme", pattern=TENANT_NAME
        ),
    ]
    limits: Annotated[
        Limits,
        replace(LIMITS, example=SOME_LIMITS, change_example={"tokens_per_day": 2_000_000}),
    ] = NO_LIMITS
    of_models: Annotated[
        dict[str, Limits],
        Shown(
            answer="",
            create="Limits of its use of single models, by public name.",
            change="A model with null loses its limits; null removes those of all models.",
            example={"demo": {"concurrent_requests": 4}},
            flag="--model-limit",
            help="The same for the use of one model; MODEL:none removes all of its limits.",
        ),
    ] = field(default_factory=dict)
    weight: Annotated[
        float,
        Shown(
            since="0003",
            answer=f"{SHARE}.",
            create=f"{SHARE}; default 1.",
            change=f"{SHARE}; default 1.",
            example=3.0,
            change_example=3.0,
            flag="--weight",
            help=f"{SHARE}, from 0.01 to 1000; `none` for 1.",
            least=0.01,
            most=1000.0,
        ),
    ] = 1.0
    max_priority: MaxPriority = None
    records: Annotated[
        bool,
        Shown(
            since="0004",
            answer=f"{RECORDS}.",
            create=BODY_RECORDS,
            change=BODY_RECORDS,
            flag="--records/--no-records",
            help="Whether requests and answers are recorded for replay, where RECORD_DIR is set.",
        ),
    ] = False
    is_active: Annotated[
        bool,
        Shown(
            answer="",
            change="Keys of a tenant that is not active are refused.",
            example=True,
            flag="--active/--inactive",
            help="Whether the tenant's keys are accepted.",
        ),
    ] = True
    created_at: Moment


KEY_FIELDS, TENANT_FIELDS = fields_of(KeyRecord), fields_of(TenantRecord)
TENANT_CHANGES = tuple(sorted(TENANT_FIELDS, key=lambda one: one.shown.since))
"""In the order of the body that changes a tenant, and of the command's options."""


class KeySource(Protocol):
    """Reads keys and tenants. A method raises KeysUnavailable if the store cannot be reached."""

    async def generation(self) -> int:
        """Grows with every change of keys or tenants, in any process. A cheap read."""
        ...

    async def key(self, key_id: str) -> KeyRecord | None: ...

    async def tenant(self, name: str) -> TenantRecord | None: ...


class KeysUnavailable(Exception):
    """The store of keys cannot be reached. The message is for the log."""
