"""Inserts secrets into a tool's headers, and removes them from its answers."""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\{(\w+)\}")
HIDDEN = "[secret]"


class HeaderSecrets:
    """`values`: the secrets by the name of their environment variable. They are never logged."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def including(self, earlier: HeaderSecrets) -> HeaderSecrets:
        """With those of `earlier` that these lack: running requests may still need them."""
        return HeaderSecrets({**earlier._values, **self._values})

    def fill(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers, with each `${NAME}` replaced by its secret."""
        return {
            name: _VARIABLE.sub(lambda found: self._values[found[1]], value)
            for name, value in headers.items()
        }

    def redact(self, text: str) -> str:
        """The text without secrets, in case an endpoint echoes its headers."""
        for value in sorted(self._values.values(), key=len, reverse=True):
            text = text.replace(value, HIDDEN)
        return text
