"""Alembic's migrations, in `versions/`: a release's schema is reached from any earlier one."""
