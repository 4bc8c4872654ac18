"""Models on NVIDIA GPUs: their options in models.yaml, and how TensorRT-LLM's tools build them."""
