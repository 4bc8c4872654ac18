"""The embeddings of one request: a call of the engine for each input, a few at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.domain.engine import Embedder, Embedding, EngineRequest
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.domain.output import Usage
from proxy.domain.record import RequestRecord, Stage, StageName

AT_ONCE = 8  # calls of one request
MOST_NUMBERS = 4_194_304  # of all vectors of one answer, which are held until it is written


@dataclass(slots=True)
class _Cost:
    """Implements record.TokenCount."""

    usage: Usage


async def embedded(
    requests: Sequence[EngineRequest],
    dimensions: int | None,
    embedder: Embedder,
    record: RequestRecord,
) -> list[Embedding]:
    """In the order of the requests.

    Raises:
        InvalidRequest: the vectors have too many numbers together.
        ProxyError: as Embedder.embed. The other calls end with the first that fails.
    """
    cost = _Cost(Usage())
    record.counts.append(cost)
    found: dict[int, Embedding] = {}
    waiting = iter(enumerate(requests))

    async def work() -> None:
        for at, request in waiting:
            with Stage(StageName.TRITON, record) as stage:
                found[at] = await embedder.embed(replace(request, stage=stage), dimensions)
            cost.usage += Usage(prompt_tokens=found[at].prompt_tokens)
            if (numbers := len(found[at].vector) // 4 * len(requests)) > MOST_NUMBERS:
                raise InvalidRequest(
                    f"The vectors of {len(requests)} inputs have {numbers} numbers: at most "
                    f"{MOST_NUMBERS} are allowed. Send fewer inputs, or ask for fewer dimensions.",
                    code=ErrorCode.INVALID_PARAMETER,
                    param="prompt",
                )

    tasks = [asyncio.create_task(work()) for _ in range(min(AT_ONCE, len(requests)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return [found[at] for at in range(len(requests))]
