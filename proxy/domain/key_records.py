"""API keys and tenants: the one table of their fields, and the port that reads them.

The store implements KeySource. The authentication reads it, and turns records into a Caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Protocol

from proxy.domain.account_fields import Shown, Text, fields_of
from proxy.domain.identity import NO_LIMITS, TENANT_NAME, Limits, ModelPatterns, Scope

EVERY_MODEL = ModelPatterns()
HIGHEST = 2**31 - 1
SOME_LIMITS = {"requests_per_minute": 60, "tokens_per_day": 1_000_000}
SOME_OF_MODELS = {"demo": {"concurrent_requests": 4}}
AT = Text(None, "2026-03-01T12:00:00Z")
LIMIT_HELP = (
    "Such as requests_per_minute=60; `none` removes it. May be repeated: see docs/limits.md for "
    "the names."
)
WEIGHT = Text("Of its share where tenants compete for a model; default 1.", 3.0)
PRIORITY = Text(
    "The highest priority that its requests get; higher numbers go first. Null: no ceiling of its "
    "own.",
    1,
)
MaxPriority = Annotated[
    int | None,
    Shown(
        since="0003",
        least=-HIGHEST,
        most=HIGHEST,
        answer=Text("The highest priority that its requests get; null: no ceiling of its own.", 1),
        create=PRIORITY,
        change=PRIORITY,
        flag="--max-priority",
        help="The highest priority that its requests get; higher numbers go first. `none` for no "
        "ceiling of its own.",
    ),
]
RECORDS = Text(
    "Whether its requests and answers are recorded for replay, where the proxy has a folder for "
    "them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """One API key `sk-<id>-<secret>`, without its secret. All times are aware, in UTC.

    digest: HMAC-SHA256 of the whole key, with the pepper as its key. overlap_digest: the digest
    before a rotation, accepted until overlap_until.
    """

    id: Annotated[
        str, Shown(answer=Text("The public part of the key: `sk-<id>-…`.", "k3x9q27bt0mz"))
    ]
    tenant: Annotated[
        str, Shown(pattern=TENANT_NAME, answer=Text(None, "acme"), create=Text(None, "acme"))
    ]
    name: Annotated[
        str,
        Shown(
            answer=Text(None, "batch jobs"),
            create=Text("What people call the key.", "batch jobs"),
            change=Text(None, "nightly batch"),
        ),
    ]
    digest: bytes
    scopes: Annotated[
        frozenset[Scope],
        Shown(
            answer=Text(None, ["chat", "models"]),
            create=Text(
                "What it may do. `admin` opens `/admin/…` and `/metrics` only.", ["chat", "models"]
            ),
            change=Text(),
            flag="--scope",
            help="May be repeated: chat, completions, embeddings, tokens, models, metrics, kserve, "
            "admin. Default: the first five.",
        ),
    ]
    models: Annotated[
        ModelPatterns,
        Shown(
            answer=Text(None, ["llama-*"]),
            create=Text(
                "Names of models that it may use, with `*` and `?` as in a shell; empty: all.",
                ["llama-*"],
            ),
            change=Text("Null or empty: all models."),
            flag="--model",
            help="A model it may use, with * and ?; may be repeated.",
        ),
    ] = EVERY_MODEL
    limits: Annotated[
        Limits,
        Shown(
            answer=Text("Those that are set."),
            create=Text(),
            change=Text("Null removes all limits."),
            flag="--limit",
            help=LIMIT_HELP,
        ),
    ] = NO_LIMITS
    max_priority: MaxPriority = None
    created_at: Annotated[datetime, Shown(answer=AT)]
    expires_at: Annotated[
        datetime | None,
        Shown(
            answer=Text(),
            create=Text("Null: never."),
            change=Text("Null: never. A time in the past ends the key now."),
            flag="--expires",
            help="Such as 90d, 12h, 2027-01-31T12:00:00Z, or `never`.",
        ),
    ] = None
    revoked_at: Annotated[datetime | None, Shown(answer=Text())] = None
    overlap_digest: bytes | None = None
    overlap_until: Annotated[
        datetime | None,
        Shown(answer=Text("Until when the key from before a rotation is accepted, too.")),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRecord:
    name: Annotated[
        str,
        Shown(
            pattern=TENANT_NAME,
            answer=Text(None, "acme"),
            create=Text("Letters, digits and `._:@-`.", "acme"),
        ),
    ]
    limits: Annotated[
        Limits,
        Shown(
            answer=Text("Those that are set.", SOME_LIMITS),
            create=Text(None, SOME_LIMITS),
            change=Text("Null removes all limits.", {"tokens_per_day": 2_000_000}),
            flag="--limit",
            help=LIMIT_HELP,
        ),
    ] = NO_LIMITS
    of_models: Annotated[
        dict[str, Limits],
        Shown(
            answer=Text(None, SOME_OF_MODELS),
            create=Text("Limits of its use of single models, by public name.", SOME_OF_MODELS),
            change=Text("A model with null loses its limits; null removes those of all models."),
            flag="--model-limit",
            help="The same for the use of one model; MODEL:none removes all of its limits.",
        ),
    ] = field(default_factory=dict)
    weight: Annotated[
        float,
        Shown(
            since="0003",
            least=0.01,
            most=1000.0,
            answer=Text("Of its share where tenants compete for a model.", 3.0),
            create=WEIGHT,
            change=WEIGHT,
            flag="--weight",
            help="Of its share where tenants compete for a model, from 0.01 to 1000; `none` for 1.",
        ),
    ] = 1.0
    max_priority: MaxPriority = None
    records: Annotated[
        bool,
        Shown(
            since="0004",
            answer=Text("Whether its requests and answers are recorded for replay."),
            create=RECORDS,
            change=RECORDS,
            flag="--records/--no-records",
            help="Whether requests and answers are recorded for replay, where RECORD_DIR is set.",
        ),
    ] = False
    is_active: Annotated[
        bool,
        Shown(
            answer=Text(None, True),
            change=Text("Keys of a tenant that is not active are refused."),
            flag="--active/--inactive",
            help="Whether the tenant's keys are accepted.",
        ),
    ] = True
    created_at: Annotated[datetime, Shown(answer=AT)]


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
