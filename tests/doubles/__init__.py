"""Public stand-ins for the ports, used by tests in place of a running Triton."""
