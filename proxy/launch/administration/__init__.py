"""The commands `tenants`, `keys`, `usage` and `audit`: what /admin/v1 does, without a server.

They take the same words, and print the same JSON.
"""
