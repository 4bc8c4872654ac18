"""The input of a batch: whether it is valid, and where its lines are. It is read in blocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

from proxy.api.batches import lines
from proxy.api.batches.batch_store import Index, Opened
from proxy.api.batches.lines import Fault
from proxy.api.http import json_shape
from proxy.api.openai.field_types import Json
from proxy.domain.errors import RateLimited, StoreUnavailable
from proxy.domain.sandbox import Sandbox, TooCostly
from proxy.state.objects import Objects

MOST_CHUNKS = 64  # of a batch, unless they had too many lines
CHUNK_LINES, CHUNK_BYTES = 64, 4_000_000
BLOCK_BYTES = 8_192  # of lines that are checked at once
MOST_FAULTS = 100
T = TypeVar("T")


class BatchInput:
    """most_bytes: of a line. most_lines: of a batch."""

    def __init__(
        self, objects: Objects, sandbox: Sandbox, *, most_bytes: int, most_lines: int
    ) -> None:
        self._objects = objects
        self._sandbox = sandbox
        self._most_bytes = most_bytes
        self._most_lines = most_lines

    async def check(self, batch: Opened) -> Index | list[Json]:
        """The index of the input, or what is wrong with it, as `errors` of the batch."""
        offsets: list[int] = []
        seen: set[bytes] = set()
        models: set[str | None] = set()
        faults: list[Json] = []

        def fault(line: int | None, found: Fault) -> None:
            shown = {"code": found.code, "line": line, "message": found.message}
            faults.append({**shown, "param": found.param})

        size = number = 0
        async for block in self._blocks(batch):
            found = [*lines.requests_of(block)]
            starts = [0, *(at for at, _ in found)]
            ends = (block.count(b"\n", *between) for between in pairwise(starts))
            places = [*accumulate(ends, initial=number + 1)][1:]
            if not found and len(block) > BLOCK_BYTES // 2:
                why = f"From this line on, more than {BLOCK_BYTES // 2} bytes are blank."
                fault(number + 1, Fault("invalid_json_line", why))
                break
            if len(found[-1][1] if found else b"") > self._most_bytes:
                why = f"This line is longer than {self._most_bytes} bytes (MAX_REQUEST_SIZE_MB)."
                fault(places[-1], Fault("line_too_long", why))
                break
            texts = [text for _, text in found]
            checks = await self.parsed(batch, lines.checked, texts)
            for line, check in zip(places, checks, strict=True):
                if isinstance(check, Fault):
                    fault(line, check)
                elif check[0] in seen:
                    why = "The custom_id of this request is that of another request, too."
                    fault(line, Fault("duplicate_custom_id", why, "custom_id"))
                else:
                    seen.add(check[0])
                    models |= {check[1]} if len(models) < 2 else set()
            offsets += [size + at for at, _ in found]
            size += len(block)
            number += block.count(b"\n")
            if len(offsets) > self._most_lines:
                why = f"A batch has at most {self._most_lines} requests (MAX_BATCH_LINES)."
                fault(None, Fault("too_many_requests", why))
                break
            if len(faults) >= MOST_FAULTS:
                break
        if not offsets and not faults:
            fault(None, Fault("empty_file", "The input file has no requests."))
        if faults:
            return faults[:MOST_FAULTS]
        return Index(
            at=int(time.time()),
            lines=len(offsets),
            model=models.pop() if len(models) == 1 else None,
            size=size,
            chunks=_chunks(offsets, size),
        )

    async def _blocks(self, batch: Opened) -> AsyncIterator[bytes]:
        """The input in blocks of whole lines, a long one alone; one that is too long ends it."""
        data = b""
        async for piece in self._objects.pieces(f"{batch.work}/input"):
            data += piece
            while len(data) >= BLOCK_BYTES:
                end = data.rfind(b"\n", 0, BLOCK_BYTES) + 1 or data.find(b"\n") + 1
                if not end:
                    break
                yield data[:end]
                data = data[end:]
            if len(data) > max(self._most_bytes, BLOCK_BYTES):
                break
        if data:
            yield data

    async def parsed(
        self, batch: Opened, parse: Callable[[Sequence[bytes], str], list[T]], texts: list[bytes]
    ) -> list[T | Fault]:
        """Raises StoreUnavailable: the sandbox has no room now."""
        found: list[T | Fault] = []
        if all(map(json_shape.is_cheap, texts)):
            found += await asyncio.to_thread(parse, texts, batch.endpoint)
            return found
        for text in texts:
            try:
                found += await self._sandbox.run(batch.caller_name, parse, [text], batch.endpoint)
            except TooCostly as error:
                found.append(Fault("invalid_json_line", f"This line cannot be read: {error}."))
            except RateLimited as error:
                raise StoreUnavailable(detail=error.message) from error
        return found


def _chunks(offsets: Sequence[int], size: int) -> list[tuple[int, int]]:
    most = min(max(-(-len(offsets) // MOST_CHUNKS), 1), CHUNK_LINES)
    found: list[tuple[int, int]] = []
    for number, (offset, end) in enumerate(zip(offsets, [*offsets[1:], size], strict=True)):
        if not found or number - found[-1][0] >= most or end - found[-1][1] > CHUNK_BYTES:
            found.append((number, offset))
    return found
