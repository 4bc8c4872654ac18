"""The `scripted` runtime, for tests and benchmarks: replays given tokens at a given pace."""
