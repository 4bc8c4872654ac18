"""Packages from the index: how an installation reports its progress, and what is installed late.

`make` runs `pip_step` before anything else is installed, so this package's `__init__` imports
nothing.
"""
