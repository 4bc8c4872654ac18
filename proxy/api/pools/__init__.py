"""`/admin/v1` for operators of pools: endpoints, deployments, and the models that Triton loads.

Unlike `admin`, it needs no store of keys, and imports none of its libraries.
"""
