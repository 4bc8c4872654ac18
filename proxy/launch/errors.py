"""The errors of this folder."""

from __future__ import annotations

import json
from pathlib import Path


class LaunchError(Exception):
    """Something the operator can mend: the message is one line that says what and how."""


class ModelLoadingFailed(LaunchError):
    """A model's folder cannot be served; told as JSON, in the words of the API's errors."""

    def __init__(self, folder: Path | str, reason: str) -> None:
        super().__init__(f"Failed to load model from {folder}: {' '.join(reason.split())}")

    def as_json(self) -> str:
        """On one line."""
        body = {"message": str(self), "type": "server_error", "code": "model_loading_failed"}
        return json.dumps({"error": body}, ensure_ascii=False)
