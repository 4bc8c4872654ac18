"""Idempotency-Key and Last-Event-ID: the layer between the callers' limits and the routes."""
