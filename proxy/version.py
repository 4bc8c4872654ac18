"""The version of this project, which is that of pyproject.toml."""

from __future__ import annotations

VERSION = "0.1.0"
