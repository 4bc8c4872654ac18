"""Durable state: tenants, keys, usage by day and the audit log, in SQLite or PostgreSQL."""
