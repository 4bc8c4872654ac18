"""The demonstration model: the folder that is shipped, and its training, which is not."""

if __name__ != "triton_openai.demo_model":  # a second copy of every class
    raise ImportError("import triton_openai.demo_model: that is this package's only name")
