"""Responses: events -> bytes on the connection, as SSE, NDJSON or one JSON body."""
