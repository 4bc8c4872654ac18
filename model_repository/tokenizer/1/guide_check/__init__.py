"""Checks guides before the engine sees them.

Start with check.py; sandbox.py sends the guide to a
child process, where trial.py compiles it and follows it for some tokens.
"""
