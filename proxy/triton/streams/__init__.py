"""Streams of ModelStreamInfer over our own HTTP/2, and the leases that end them at the engine."""
