"""The operator that calls these routes, and the model that a path names."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from proxy.domain.identity import Scope, current_caller

ModelName = Annotated[str, Path(min_length=1, description="The model's name.")]


def actor() -> str:
    """The caller's name for the audit log. `anonymous`: anybody on this machine, without keys.

    Raises:
        RuntimeError: the route was reached without the scope, which is a bug of ours.
    """
    caller = current_caller.get()
    if not caller.may(Scope.ADMIN):
        raise RuntimeError("a route of the administration was reached without its scope")
    return caller.key_id
