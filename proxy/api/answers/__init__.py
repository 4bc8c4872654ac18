"""Responses: events -> bytes on the connection, as SSE, JSON lines or one JSON body."""
