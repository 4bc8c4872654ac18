"""Requests and answers of tenants that an operator records, for `triton-openai replay`."""
