"""The plain chat protocol: /chat/json, /chat/stream (newline-delimited JSON) and /chat/sse."""
