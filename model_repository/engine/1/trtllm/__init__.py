"""The `tensorrt_llm` runtime: NVIDIA's LLM API, which does the in-flight batching itself.

This package must not be called `tensorrt_llm`: it would hide NVIDIA's library or be hidden by it.
"""
