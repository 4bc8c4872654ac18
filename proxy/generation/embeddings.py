"""The embeddings or scores of one request: a stream of one delta for each call, a few at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import accumulate

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import EngineFailed, InvalidRequest, ModelUnavailable
from proxy.domain.output import Usage
from proxy.domain.record import RequestRecord, Stage, StageName
from proxy.domain.request import TextPrompt, TokenPrompt
from proxy.generation.stream.engine_stream import StreamMeans

AT_ONCE, BATCHES_AT_ONCE = 8, 2  # streams of one request, of one input each or of several
BATCH_INPUTS, BATCH_BYTES = 16, 262_144
ID_BYTES = 4
Inputs = tuple[TextPrompt | TokenPrompt, ...]
MOST_NUMBERS = 4_194_304  # of all vectors of one answer, which are held until it is written


@dataclass(slots=True)
class _Cost:
    """Implements record.TokenCount."""

    usage: Usage


def batched(request: EngineRequest) -> list[Inputs]:
    """The inputs of each call: several, if the model is ours."""
    if request.model.facts.pooling is None:
        return [(each,) for each in request.batch]
    found: list[list[TextPrompt | TokenPrompt]] = []
    size = 0
    for each in request.batch:
        if isinstance(each, TokenPrompt):
            own = ID_BYTES * len(each.ids)
        else:
            own = len(each.text) + len(each.pair or "")
        if not found or len(found[-1]) == BATCH_INPUTS or size + own > BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(each)
        size += own
    return [*map(tuple, found)]


def at_once(request: EngineRequest, calls: Sequence[Inputs]) -> int:
    """How many of the calls run at once."""
    return min(AT_ONCE if request.model.facts.pooling is None else BATCHES_AT_ONCE, len(calls))


def _call(request: EngineRequest, inputs: Inputs, number: int) -> EngineRequest:
    """number: of the first of these inputs."""
    id = request.id if len(request.batch) == 1 else f"{request.id}-{number}"
    batch = () if request.model.facts.pooling is None else inputs
    if isinstance(first := inputs[0], TokenPrompt):
        return replace(request, id=id, token_ids=first.ids, batch=batch)
    return replace(request, id=id, text=first.text, pair=first.pair, batch=batch)


async def embedded(
    request: EngineRequest, calls: Sequence[Inputs], means: StreamMeans, record: RequestRecord
) -> list[bytes]:
    """A vector for each input: numbers of 32 bits, little-endian. A stream that is lost is sent
    again: to another endpoint, or when one is back.

    Raises:
        InvalidRequest: they have too many numbers together. The field of an input that the model
            refused is `prompt[<its index>]`.
        ProxyError: as Engine.generate. The first that fails ends the others.
    """
    cost, loop, engine = _Cost(Usage()), asyncio.get_running_loop(), means.engine
    ends = loop.time() + request.timeout_s
    record.counts.append(cost)
    inputs = len(request.batch)
    firsts = [0, *accumulate(map(len, calls))]
    found: list[list[bytes]] = [[]] * len(calls)
    left = enumerate(calls)

    async def vectors(call: EngineRequest) -> bytes:
        with Stage(StageName.TRITON, record) as stage:
            async with aclosing(engine.generate(replace(call, stage=stage))) as deltas:
                async for delta in deltas:
                    cost.usage += Usage(prompt_tokens=delta.prompt_tokens or 0)
                    return delta.embedding
        raise EngineFailed("The model server failed.", detail="a stream without an embedding")

    async def answered(call: EngineRequest) -> bytes:
        part, resends = call, 0
        while True:
            try:
                return await vectors(part)
            except ModelUnavailable as error:
                if resends == means.max_resends:
                    raise
                resends += 1
                avoids = part.avoids | set(filter(None, [error.endpoint]))
                left_s, id = max(ends - loop.time(), 0.001), f"{call.id}-resent{resends}"
                part = replace(call, id=id, timeout_s=left_s, avoids=avoids)
                if not engine.has_another(part):
                    await served_again(error)
                    part = replace(part, avoids=frozenset())
                record.resends += 1

    async def served_again(lost: ModelUnavailable) -> None:
        """Raises `lost`: nobody serves the model's build within the time."""
        card, registry = request.model, means.registry
        with Stage(StageName.WAIT, record):
            while await means.recovery_queue.wait(max(ends - loop.time(), 0.0)):
                if registry.is_available(card) or not registry.has_build(card):
                    break
        if not registry.is_available(card):
            raise lost

    async def work() -> None:
        for index, call in left:
            try:
                answer = await answered(_call(request, call, firsts[index]))
            except InvalidRequest as error:
                if (error.param or "").startswith("prompt["):
                    error.param = f"prompt[{firsts[index] + int(str(error.param)[7:-1])}]"
                raise
            size = len(answer) // len(call)
            if (numbers := size // 4 * inputs) > MOST_NUMBERS:
                raise InvalidRequest(
                    f"The vectors of {inputs} inputs have {numbers} numbers: at most "
                    f"{MOST_NUMBERS} are allowed. Send fewer inputs, or ask for fewer dimensions.",
                    param="prompt",
                )
            found[index] = [answer[at : at + size] for at in range(0, len(answer), size)]

    await side_by_side(work, at_once(request, calls))
    return [each for part in found for each in part]


async def side_by_side(work: Callable[[], Coroutine[None, None, None]], times: int) -> None:
    """Does it so many times at once. The first that fails ends the others; so does cancelling."""
    workers = [asyncio.create_task(work()) for _ in range(times)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
