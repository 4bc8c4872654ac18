"""Quantizes a checkpoint for TensorRT-LLM's PyTorch runtime, with nvidia-modelopt."""
