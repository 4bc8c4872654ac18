"""OpenTelemetry: the traces of requests, written when they have ended."""
