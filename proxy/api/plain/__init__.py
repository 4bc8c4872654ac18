"""The plain dialect: /chat/json, /chat/stream (newline-delimited JSON) and /chat/sse."""
