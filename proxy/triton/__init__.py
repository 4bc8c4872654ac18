"""The proxy's side of Triton: the tensor contract, its encoding, streams, and loaded models."""
