"""`triton-openai top` and `trace`: what a running proxy does now, and did with one request."""
