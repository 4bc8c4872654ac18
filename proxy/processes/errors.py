"""Errors that an operator can fix, and the line that a command prints for one."""

from __future__ import annotations

import errno
import json
from pathlib import Path

from pydantic import ValidationError


class LaunchError(Exception):
    """An error that the operator can fix. The message says what is wrong and how to fix it."""


class StartCrashed(LaunchError):
    """A server crashed while it started, by a fault of its own that the next start may not have."""


class ModelLoadingFailed(LaunchError):
    """A model's folder cannot be served. Printed as JSON, in the format of the API's errors."""

    def __init__(self, folder: Path | str, reason: str) -> None:
        super().__init__(f"Failed to load model from {folder}: {' '.join(reason.split())}")

    def as_json(self) -> str:
        """The error on one line."""
        body = {"message": str(self), "type": "server_error", "code": "model_loading_failed"}
        return json.dumps({"error": body}, ensure_ascii=False)


def exit_reason(returncode: int) -> str:
    """`signal 9`, or `exit status 1`."""
    return f"signal {-returncode}" if returncode < 0 else f"exit status {returncode}"


def explain(error: LaunchError | OSError | ValidationError) -> str | None:
    """The line to print; None for an error that an operator cannot fix."""
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
    if not first["loc"]:  # settings that contradict each other: the message names them
        return first["msg"].removeprefix("Value error, ")
    name = "_".join(str(part) for part in first["loc"])
    return f"{name.upper()}={first['input']}: {first['msg']} (a variable, or an option)"
