"""A sandbox without walls, for tests that are not about its limits."""

from __future__ import annotations


class InProcess:
    """Calls the function where it stands. `callers`: of all calls, in order."""

    def __init__(self) -> None:
        self.callers: list[str] = []

    async def run(self, caller, function, *args, **kwargs):
        self.callers.append(caller)
        return function(*args, **kwargs)
