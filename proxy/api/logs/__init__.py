"""`/admin/v1/log-level`: the level of the log of a running proxy."""
