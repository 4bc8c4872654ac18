"""An engine whose streams have their own pace and length, which their prompt asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

from proxy.domain.engine import EngineRequest
from proxy.domain.output import EngineTimes, FinishReason, TokenDelta
from tests.doubles.engine import ScriptedEngine


class PacedEngine(ScriptedEngine):
    """The prompt ends with JSON: `queue_s`, `first_s`, `gap_s`, `tokens`, `finish`. The prompt has
    as many tokens as `prompt_tokens` says.
    """

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        text = request.text or ""
        pace = json.loads(text[text.index("{") : text.rindex("}") + 1])
        await asyncio.sleep(pace["queue_s"] + pace["first_s"])
        first = {"prompt_tokens": pace["prompt_tokens"], "queue_s": pace["queue_s"]}
        for number in range(pace["tokens"]):
            if number:
                await asyncio.sleep(pace["gap_s"])
            yield TokenDelta((b"a",), **({} if number else first))
        decode_s = pace["gap_s"] * (pace["tokens"] - 1)
        times = EngineTimes(prefill_s=pace["first_s"], decode_s=decode_s)
        yield TokenDelta((b"",), finish=FinishReason(pace["finish"]), times=times)
