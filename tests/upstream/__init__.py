"""Extracts facts about TensorRT-LLM from its source files, for build_engines/upstream/."""
