"""Limits on what callers may ask for: concurrency, sizes of requests, order of starts."""
