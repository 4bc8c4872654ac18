"""Version 4: which tenants' requests and answers are recorded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    records = sa.Column("records", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("tenants", records)
