"""Our HTTP server: uvicorn runs `http_connection` for each client, with bounds on all it may do."""
