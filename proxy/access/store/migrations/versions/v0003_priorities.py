"""Version 3: weights of tenants, and ceilings of the priorities of tenants and keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    weight = sa.Column("weight", sa.Double, nullable=False, server_default="1")
    op.add_column("tenants", weight)
    for table in ("tenants", "keys"):
        op.add_column(table, sa.Column("max_priority", sa.Integer))
