"""TensorRT-LLM and its C++ backend as we know them, to hold what is installed to."""
