"""Secrets in a tool's headers: put in for the call, kept out of everything else."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{(\w+)\}")
HIDDEN = "[secret]"


class HeaderSecrets:
    """By name of the variable. Never printed."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def fill(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers with the secrets that they name."""
        return {
            name: _VARIABLE.sub(lambda found: self._values[found[1]], value)
            for name, value in headers.items()
        }

    def redact(self, text: str) -> str:
        """A text without them, in case an endpoint echoes what it got."""
        for value in sorted(self._values.values(), key=len, reverse=True):
            text = text.replace(value, HIDDEN)
        return text
