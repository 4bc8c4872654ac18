"""The commands `tenants`, `keys`, `usage` and `audit`: what /admin/v1 does, without a server.

They take the same words, and print the same JSON. `endpoints`, `deployments` and `models load` call
/admin/v1 of a running proxy, since it alone knows its pools.
"""
