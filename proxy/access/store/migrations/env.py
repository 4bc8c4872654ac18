"""Runs migrations over the connection that `schema` gives. Loaded by alembic, by this name."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
