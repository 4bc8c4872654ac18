"""The commands of operators: `accounts` works on the store itself, the others call a proxy.

`endpoints`, `deployments` and `models load` call /admin/v1 of a running proxy, since it alone knows
its pools.
"""
