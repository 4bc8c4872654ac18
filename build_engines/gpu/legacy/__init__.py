"""Legacy: engine plans (`engine: plan`) and NVIDIA's C++ backend (`runtime: tensorrtllm`).

TensorRT-LLM 1.3.0rc20 is the last version with them (pull requests 15763, 15767, 15907, 15918).
LEGACY of tests/contract/test_legacy.py lists every place outside this folder that serves them only.
"""
