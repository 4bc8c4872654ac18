"""The name of the operator that calls these routes."""

from __future__ import annotations

from triton_openai.proxy.domain.identity import Scope, current_caller


def actor() -> str:
    """The caller's name for the audit log. `anonymous`: anybody on this machine, without keys.

    Raises:
        RuntimeError: the route was reached without the scope, which is a bug of ours.
    """
    caller = current_caller.get()
    if not caller.may(Scope.ADMIN):
        raise RuntimeError("a route of the administration was reached without its scope")
    return caller.key_id
