"""Version 2: endpoints that operators drained, and weights that they set."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "drained_endpoints",
        sa.Column("address", sa.Text),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("address", name="pk_drained_endpoints"),
    )
    op.create_table(
        "deployment_weights",
        sa.Column("model", sa.Text),
        sa.Column("history", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("model", name="pk_deployment_weights"),
    )
