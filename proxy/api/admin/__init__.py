"""`/admin/v1`: tenants, keys, usage and the audit log; and each key's own usage."""
