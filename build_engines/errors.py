"""The errors of a build."""

from __future__ import annotations

from pathlib import Path

INSTALL_BUILD_TOOLS = (
    "pip install 'triton-openai[build]', or in a clone make build-tools (1 GB, or 5 GB where torch "
    "is a CUDA build)"
)


def in_words(error: Exception) -> str:
    """What reading a config raised, without Python's names."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


class BuildError(Exception):
    """A model cannot be built; the message says what was wrong and what to do."""


class MissingPackage(BuildError):
    """A package that only builds need is not installed."""


class UnservableFolder(BuildError):
    """The model in a folder cannot be served; `reason` is one line."""

    def __init__(self, folder: Path | str, reason: str) -> None:
        super().__init__(f"Failed to load model from {folder}: {reason}")
        self.folder = folder
        self.reason = reason
