"""Models on NVIDIA GPUs: what models.yaml says of them, and how upstream's tools build them."""
