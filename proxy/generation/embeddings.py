"""The embeddings of one request: a stream of one delta for each input, a few at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from proxy.domain.engine import Engine, EngineRequest
from proxy.domain.errors import EngineFailed, ErrorCode, InvalidRequest, ModelUnavailable
from proxy.domain.output import Usage
from proxy.domain.record import RequestRecord, Stage, StageName

AT_ONCE = 8  # streams of one request
MOST_NUMBERS = 4_194_304  # of all vectors of one answer, which are held until it is written


@dataclass(slots=True)
class _Cost:
    """Implements record.TokenCount."""

    usage: Usage


async def embedded(
    requests: Sequence[EngineRequest], engine: Engine, record: RequestRecord
) -> list[bytes]:
    """The vectors: numbers of 32 bits, little-endian. A stream that is lost is sent once more.

    Raises:
        InvalidRequest: they have too many numbers together.
        ProxyError: as Engine.generate. The first that fails ends the others.
    """
    cost, gate = _Cost(Usage()), asyncio.Semaphore(AT_ONCE)
    record.counts.append(cost)

    async def vector(request: EngineRequest) -> bytes:
        with Stage(StageName.TRITON, record) as stage:
            async with aclosing(engine.generate(replace(request, stage=stage))) as deltas:
                async for delta in deltas:
                    cost.usage += Usage(prompt_tokens=delta.prompt_tokens or 0)
                    return delta.embedding
        raise EngineFailed("The model server failed.", detail="a stream without an embedding")

    async def bounded(request: EngineRequest) -> bytes:
        async with gate:
            try:
                found = await vector(request)
            except ModelUnavailable as error:
                again = replace(request, avoids=frozenset(filter(None, [error.endpoint])))
                if not again.avoids or not engine.has_another(again):
                    raise
                record.resends += 1
                found = await vector(again)
        if (numbers := len(found) // 4 * len(requests)) > MOST_NUMBERS:
            raise InvalidRequest(
                f"The vectors of {len(requests)} inputs have {numbers} numbers: at most "
                f"{MOST_NUMBERS} are allowed. Send fewer inputs, or ask for fewer dimensions.",
                code=ErrorCode.INVALID_PARAMETER,
                param="prompt",
            )
        return found

    tasks = [asyncio.create_task(bounded(request)) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
