"""Streams of ModelStreamInfer: the port, and its two adapters, of which a setting chooses one."""
