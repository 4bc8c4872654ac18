"""The `vllm` runtime: vLLM's asynchronous engine, which does the batching itself.

This package must not be called `vllm`: it would hide that library or be hidden by it.
"""
