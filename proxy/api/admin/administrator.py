"""Who administrates: the caller that the authentication has admitted."""

from __future__ import annotations

from triton_openai.proxy.domain.identity import ANYONE, Scope, current_caller

SCOPE = Scope.ADMIN  # what every route of this package but /v1/usage needs


def actor() -> str:
    """The caller's name for the audit log.

    Raises:
        RuntimeError: the route was reached without the scope, which is a bug of ours.
    """
    caller = current_caller.get()
    if caller is ANYONE or not caller.may(SCOPE):
        raise RuntimeError("a route of the administration was reached without its scope")
    return caller.key_id
