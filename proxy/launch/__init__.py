"""The commands: start, build, supervise and stop what `proxy/cli.py` is asked for."""
