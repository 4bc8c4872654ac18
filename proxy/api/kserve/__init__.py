"""`/v2`: KServe's protocol for any model of Triton, with its extension for binary tensors."""
