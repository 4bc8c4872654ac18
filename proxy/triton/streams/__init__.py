"""Streams of ModelStreamInfer: the port and its two adapters; a setting chooses one."""
