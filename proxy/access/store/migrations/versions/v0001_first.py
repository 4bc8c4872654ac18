"""The first version: tenants, keys, usage by day, audit log, and the row of counters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    _tenants_and_keys()
    _usage()
    _audit()
    meta = op.create_table(
        "meta",
        sa.Column("id", sa.Integer, autoincrement=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("audit_entries", sa.BigInteger, nullable=False),
        sa.Column("audit_chain_key", sa.Text, nullable=False),
        sa.Column("audit_mac", sa.Text, nullable=False),
        sa.Column("audit_head", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_meta"),
        sa.CheckConstraint("id = 1", name=op.f("ck_meta_one_row")),
    )
    empty = {"audit_entries": 0, "audit_chain_key": "", "audit_mac": "", "audit_head": ""}
    op.bulk_insert(meta, [{"id": 1, "generation": 0, **empty}])


def _tenants_and_keys() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text),
        sa.Column("limits", sa.JSON, nullable=False),
        sa.Column("of_models", sa.JSON, nullable=False),
        sa.Column("is_active", sa.Boolean, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_tenants"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Text),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("models", sa.JSON, nullable=False),
        sa.Column("limits", sa.JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("revoked_at", TIME),
        sa.Column("overlap_digest", sa.LargeBinary),
        sa.Column("overlap_until", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name="fk_keys_tenant"),
    )
    op.create_index("ix_keys_tenant", "keys", ["tenant"])


def _usage() -> None:
    op.create_table(
        "usage",
        sa.Column("day", sa.Date),
        sa.Column("tenant", sa.Text),
        sa.Column("key", sa.Text),
        sa.Column("model", sa.Text),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in (
                "requests",
                "errors",
                "prompt_tokens",
                "cached_tokens",
                "output_tokens",
                "reasoning_tokens",
            )
        ),
        sa.Column("queue_s", sa.Double, nullable=False),
        sa.Column("cost", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("day", "tenant", "key", "model", name="pk_usage"),
    )
    op.create_table(
        "usage_batches",
        sa.Column("writer", sa.Text),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("writer", name="pk_usage_batches"),
    )


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger, autoincrement=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("object", sa.Text, nullable=False),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
        sa.Column("chain_key", sa.Text, nullable=False),
        sa.Column("mac", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    )
