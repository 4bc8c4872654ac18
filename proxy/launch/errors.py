"""The one error of this folder."""

from __future__ import annotations


class LaunchError(Exception):
    """Something the operator can mend: the message is one line that says what and how."""
