"""The OpenAI-compatible front for Triton: HTTP in, decoupled gRPC streams out, SSE back."""

__version__ = "0.1.0"  # pyproject.toml says the same
