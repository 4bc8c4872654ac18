"""Values of the proxy, standard library only, no I/O. Everything else may import this."""
