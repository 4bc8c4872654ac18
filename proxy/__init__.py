"""The OpenAI-compatible front for Triton: HTTP in, decoupled gRPC streams out, SSE back."""
