"""What can go wrong with a build."""

from __future__ import annotations


class BuildError(Exception):
    """A model cannot be built; the message names the model, what was wrong and what to do."""
