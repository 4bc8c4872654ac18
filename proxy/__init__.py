"""The OpenAI-compatible front for Triton: HTTP in, decoupled gRPC streams out, SSE back."""

__version__ = "0.1.0"  # pyproject.toml says the same

if __name__ != "triton_openai.proxy":  # a second copy of every class
    raise ImportError("import triton_openai.proxy: that is this package's only name")
