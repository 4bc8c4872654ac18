"""Scripts of Redis behind fronts that know no EVALSHA."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from redis.exceptions import NoScriptError, ResponseError

from proxy.state.redis_connection import Script


class Front:
    """A client whose other side answers EVALSHA with these errors, one after the other."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = deque(errors)
        self.calls: list[str] = []

    async def evalsha(self, digest: str, count: int, *rest: object) -> str:
        self.calls.append("evalsha")
        if self._errors:
            raise self._errors.popleft()
        return "done"

    async def eval(self, text: str, count: int, *rest: object) -> str:
        self.calls.append("eval")
        return "done"


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (NoScriptError("NOSCRIPT"), ["evalsha", "eval", "evalsha"]),
        (ResponseError("unknown command 'EVALSHA'"), ["evalsha", "eval", "eval"]),
        (ResponseError("EVALSHA is not supported"), ["evalsha", "eval", "eval"]),
    ],
)
def test_eval_stands_in_for_evalsha(error: Exception, calls: list[str]):
    """litellm 32232: EVALSHA breaks behind Codis."""
    front, script = Front(error), Script("return 1")

    async def main() -> None:
        for _ in range(2):
            assert await script(front, ["k"], []) == "done"

    asyncio.run(main())
    assert front.calls == calls


def test_other_errors_of_a_script_are_not_hidden():
    async def main() -> None:
        await Script("return 1")(Front(ResponseError("WRONGTYPE")), ["k"], [])

    with pytest.raises(ResponseError, match="WRONGTYPE"):
        asyncio.run(main())
