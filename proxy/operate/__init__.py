"""The commands of `proxy/cli.py`: start, build, supervise and stop."""
