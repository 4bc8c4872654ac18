"""A sandbox without walls, for tests that are not about its limits."""

from __future__ import annotations


class InProcess:
    """Calls the function where it stands. callers, functions: of all calls, in order."""

    def __init__(self) -> None:
        self.callers: list[str] = []
        self.functions: list[str] = []

    async def start(self):
        pass

    async def run(self, caller, function, *args, **kwargs):
        self.callers.append(caller)
        self.functions.append(function.__name__)
        return function(*args, **kwargs)
