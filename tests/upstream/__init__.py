"""Extracts facts about TensorRT-LLM from its source files, for build_engines/upstream/.

vllm_metrics.json has facts about vLLM: names and labels of its metrics.
"""
