"""The embeddings or scores of one request: a stream of one delta for each call, a few at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from proxy.domain.engine import Engine, EngineRequest
from proxy.domain.errors import EngineFailed, ErrorCode, InvalidRequest, ModelUnavailable
from proxy.domain.output import Usage
from proxy.domain.record import RequestRecord, Stage, StageName

AT_ONCE, BATCHES_AT_ONCE = 8, 2  # streams of one request, of one input each or of several
BATCH_INPUTS, BATCH_BYTES = 16, 262_144
ID_BYTES = 4
MOST_NUMBERS = 4_194_304  # of all vectors of one answer, which are held until it is written


@dataclass(slots=True)
class _Cost:
    """Implements record.TokenCount."""

    usage: Usage


def batched(requests: Sequence[EngineRequest]) -> list[EngineRequest]:
    """The calls that embed all inputs: several in one, if the model is ours."""
    if requests[0].model.facts.pooling is None:
        return [*requests]
    found: list[list[EngineRequest]] = []
    size = 0
    for each in requests:
        own = len(each.text or "") + len(each.pair or "") + ID_BYTES * len(each.token_ids or ())
        if not found or len(found[-1]) == BATCH_INPUTS or size + own > BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(each)
        size += own
    return [replace(group[0], batch=tuple(group)) for group in found]


def at_once(calls: Sequence[EngineRequest]) -> int:
    """How many of the calls run at once."""
    return min(BATCHES_AT_ONCE if calls[0].batch else AT_ONCE, len(calls))


async def embedded(
    calls: Sequence[EngineRequest], engine: Engine, record: RequestRecord
) -> list[bytes]:
    """A vector for each input: numbers of 32 bits, little-endian. A stream that is lost is sent
    once more.

    Raises:
        InvalidRequest: they have too many numbers together. The field of an input that the model
            refused is `prompt[<its index>]`.
        ProxyError: as Engine.generate. The first that fails ends the others.
    """
    cost = _Cost(Usage())
    record.counts.append(cost)
    inputs = sum(len(call.batch) or 1 for call in calls)
    found: list[list[bytes]] = [[]] * len(calls)
    left = enumerate(calls)

    async def vectors(request: EngineRequest) -> bytes:
        with Stage(StageName.TRITON, record) as stage:
            async with aclosing(engine.generate(replace(request, stage=stage))) as deltas:
                async for delta in deltas:
                    cost.usage += Usage(prompt_tokens=delta.prompt_tokens or 0)
                    return delta.embedding
        raise EngineFailed("The model server failed.", detail="a stream without an embedding")

    async def answered(request: EngineRequest) -> bytes:
        try:
            return await vectors(request)
        except ModelUnavailable as error:
            again = replace(request, avoids=frozenset(filter(None, [error.endpoint])))
            if not again.avoids or not engine.has_another(again):
                raise
            record.resends += 1
            return await vectors(again)

    async def work() -> None:
        for index, call in left:
            try:
                answer = await answered(call)
            except InvalidRequest as error:
                if (error.param or "").startswith("prompt["):
                    first = sum(len(one.batch) for one in calls[:index])
                    error.param = f"prompt[{first + int(str(error.param)[7:-1])}]"
                raise
            size = len(answer) // (len(call.batch) or 1)
            if (numbers := size // 4 * inputs) > MOST_NUMBERS:
                raise InvalidRequest(
                    f"The vectors of {inputs} inputs have {numbers} numbers: at most "
                    f"{MOST_NUMBERS} are allowed. Send fewer inputs, or ask for fewer dimensions.",
                    code=ErrorCode.INVALID_PARAMETER,
                    param="prompt",
                )
            found[index] = [answer[at : at + size] for at in range(0, len(answer), size)]

    workers = [asyncio.create_task(work()) for _ in range(at_once(calls))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
    return [each for part in found for each in part]
