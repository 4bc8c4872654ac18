"""Limits of tenants, keys and models: what a request reserves, and what it has used."""
