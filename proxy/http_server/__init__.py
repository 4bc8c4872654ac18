"""Our HTTP server: uvicorn with limits on slow and greedy clients, draining."""
