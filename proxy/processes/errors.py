"""What an operator can mend, and the line that a command shows for it."""

from __future__ import annotations

import errno
import json
from pathlib import Path

from pydantic import ValidationError


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


def exit_reason(returncode: int) -> str:
    """`signal 9`, or `exit status 1`."""
    return f"signal {-returncode}" if returncode < 0 else f"exit status {returncode}"


def explain(error: LaunchError | OSError | ValidationError) -> str | None:
    """The one line to show; None where it is no failure that an operator can mend."""
    match error:
        case LaunchError():
            return " ".join(str(error).split())
        case ValidationError():
            return _wrong_setting(error)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            where = f" at {error.filename}" if error.filename else ""
            return f"the disk is full{where}: free some, or set ARTIFACTS_DIR to another disk"
        case OSError(errno=errno.EACCES | errno.EROFS | errno.EPERM):
            return f"cannot write {error.filename}: {error.strerror}"
    return None


def _wrong_setting(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if not first["loc"]:  # settings that do not go together: the message names them
        return first["msg"].removeprefix("Value error, ")
    name = "_".join(str(part) for part in first["loc"])
    return f"{name.upper()}={first['input']}: {first['msg']} (a variable, or an option)"
