"""Our side of Triton: the tensor contract, its encoding, streams, and what is loaded there."""
