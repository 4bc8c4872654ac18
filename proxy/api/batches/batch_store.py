"""Batches as objects: in which order they are written, so that each line counts once.

Of a batch, each object is created once by whoever comes first, in whatever process, and never
changes; so what exists says how far the batch is, and whoever finds it can go on from there:

    open/<tenant>/<batch>                    it has not ended: proxies look here for work
    <tenant>/batches/<batch>                 what was asked, by whom
    <tenant>/work/<batch>/input              the input file, even if that is deleted
                         /index              the input is valid; where its chunks of lines begin
                         /cancel             it shall end
                         /lines/<chunk>/<n>  the answer of line n, with what it costs
                         /chunks/<chunk>.<completed>.<failed>   its lines are answered and charged
                         /finalizing         all chunks are; when, and how the batch ends
    <tenant>/files/…, <tenant>/about/…       the output and error files
    <tenant>/ended/<batch>                   the batch as it stays

The order, for which a process may be killed between any two steps:

1.  A proxy claims a chunk (a lease in Redis; in memory, where it is alone). The claim only saves
    work: two proxies that have the same chunk, because Redis lost the claim, answer a line twice,
    and one answer is kept.
2.  It generates a line's answer and creates `lines/<chunk>/<n>`: this commits it. If another answer
    is there, this one is dropped and its reservation given back. The caller's limits are
    settled after that. A killed process leaves no line, and the next one generates it again.
3.  When all lines of the chunk are there, their rows of usage are added in one transaction of the
    database, under the name of the batch and the chunk, which adds nothing a second time. Its lines
    never change, so the rows are always the same.
4.  `chunks/<chunk>…` is created after that; then the claim is given up. So each line that is in the
    output is charged, and nothing that is not.
5.  Where a batch is cancelled or expires, each line without an answer gets one that says so, by the
    same `create`; from then on it is like any other, and steps 3 and 4 follow.
6.  When all chunks are there, the files are written, in the order of the input. Names and bytes
    follow from the lines, so that two proxies write the same. Then `ended`, then the work and at
    last the mark in `open` are removed.

A limit of the caller (not the usage) may lack lines whose process was killed between 2 and 3.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson
from pydantic import TypeAdapter

from proxy.api.batches.files import created_s, new_id
from proxy.api.openai.field_types import Json
from proxy.domain.errors import ErrorCode, InvalidRequest, RateLimited, RequestError, echoed
from proxy.domain.identity import Caller
from proxy.state.objects import Objects

PREFIX = "batch_"
WINDOW_S = 86_400
OPEN = "open"
TENANTS = "tenants/"
TIMES = "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A batch as it was created. tenant: the folder of its owner. caller_name: see
    authentication.caller_name. keep_s: of its output.
    """

    id: str
    tenant: str
    created_at: int
    endpoint: str
    input_file_id: str
    metadata: dict[str, str] | None
    keep_s: int
    caller: Caller
    caller_name: str

    @property
    def work(self) -> str:
        return f"{self.tenant}/work/{self.id}"

    @property
    def mark(self) -> str:
        return f"{OPEN}/{self.tenant.removeprefix(TENANTS)}/{self.id}"

    @property
    def expires_at(self) -> int:
        return self.created_at + WINDOW_S

    def line(self, chunk: int, number: int) -> str:
        return f"{self.work}/lines/{chunk:06}/{number:07}"

    def body(
        self,
        status: str,
        *,
        total: int = 0,
        model: str | None = None,
        counts: tuple[int, int] = (0, 0),
        times: Mapping[str, int] | None = None,
        **more: object,
    ) -> Json:
        """As the API has it. counts: completed, failed. times: of TIMES."""
        at = times or {}
        completed, failed = counts
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "model": model,
            "errors": None,
            "input_file_id": self.input_file_id,
            "completion_window": "24h",
            "status": status,
            "output_file_id": None,
            "error_file_id": None,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            **{f"{name}_at": at.get(name) for name in TIMES},
            "request_counts": {"total": total, "completed": completed, "failed": failed},
            "usage": None,
            "metadata": self.metadata,
            **more,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The index of a valid input. chunks: the first line of each, and its offset. size: of the
    input, in bytes. model: None where the lines name several.
    """

    at: int
    lines: int
    model: str | None
    size: int
    chunks: list[tuple[int, int]] = field(default_factory=list)

    def numbers(self, chunk: int) -> range:
        ends = [*(first for first, _ in self.chunks[1:]), self.lines]
        return range(self.chunks[chunk][0], ends[chunk])

    def span(self, chunk: int) -> tuple[int, int]:
        ends = [*(offset for _, offset in self.chunks[1:]), self.size]
        return self.chunks[chunk][1], ends[chunk]


_OPENED: TypeAdapter[Opened] = TypeAdapter(Opened)
_INDEX: TypeAdapter[Index] = TypeAdapter(Index)


class BatchStore:
    def __init__(self, objects: Objects, *, most_open: int) -> None:
        self.objects = objects
        self._most_open = most_open

    async def open(self, batch: Opened, input_path: str) -> None:
        """Raises RequestError: the input is gone. RateLimited: the tenant has too many batches."""
        if not await self.objects.copy(input_path, f"{batch.work}/input"):
            raise RequestError(
                f"There is no file {echoed(batch.input_file_id)}.",
                code=ErrorCode.FILE_NOT_FOUND,
                param="input_file_id",
            )
        await self.objects.create(batch.mark, b"")
        open = await self.objects.below(batch.mark.rpartition("/")[0])
        if len(open) > self._most_open:  # those that come at the same time count as well
            await self.clear(batch)
            raise RateLimited(
                f"You have {self._most_open} batches that have not ended (the setting "
                "MAX_OPEN_BATCHES): wait for one of them.",
                retry_after_s=60.0,
                code=ErrorCode.CONCURRENCY_LIMIT_EXCEEDED,
            )
        await self.objects.create(f"{batch.tenant}/batches/{batch.id}", _OPENED.dump_json(batch))

    async def marks(self) -> list[tuple[str, str]]:
        """Tenant and id of all open batches: the oldest of each tenant, then their second ones."""
        places: dict[str, int] = {}
        found = []
        for path, _ in await self.objects.below(OPEN):
            tenant, _, id = path.partition("/")
            places[tenant] = places.get(tenant, 0) + 1
            found.append((places[tenant], id, f"{TENANTS}{tenant}"))
        return [(tenant, id) for _, id, tenant in sorted(found)]

    async def opened(self, tenant: str, id: str) -> Opened | None:
        found = None
        if id.startswith(PREFIX) and id.isidentifier() and id.isascii():
            found = await self.objects.read(f"{tenant}/batches/{id}")
        return None if found is None else _OPENED.validate_json(found)

    async def index(self, batch: Opened) -> Index | None:
        found = await self.objects.read(f"{batch.work}/index")
        return None if found is None else _INDEX.validate_json(found)

    async def keep_index(self, batch: Opened, index: Index) -> Index:
        """The one that was kept first: another release may make other chunks."""
        if await self.objects.create(f"{batch.work}/index", _INDEX.dump_json(index)):
            return index
        return await self.index(batch) or index

    async def done(self, batch: Opened) -> dict[int, tuple[int, int]]:
        """The completed and failed lines of each chunk that is over."""
        found = {}
        for path, _ in await self.objects.below(f"{batch.work}/chunks"):
            chunk, completed, failed = map(int, path.split("."))
            found[chunk] = completed, failed
        return found

    async def noted(self, batch: Opened, name: str) -> Json | None:
        """`cancel` or `finalizing`."""
        found = await self.objects.read(f"{batch.work}/{name}")
        noted: Json | None = None if found is None else orjson.loads(found)
        return noted

    async def note(self, batch: Opened, name: str, **values: object) -> Json:
        """As it was noted first."""
        made = {"at": int(time.time()), **values}
        if await self.objects.create(f"{batch.work}/{name}", orjson.dumps(made)):
            return made
        return await self.noted(batch, name) or made

    async def ended(self, batch: Opened) -> Json | None:
        found = await self.objects.read(f"{batch.tenant}/ended/{batch.id}")
        ended: Json | None = None if found is None else orjson.loads(found)
        return ended

    async def end(self, batch: Opened, body: Json) -> None:
        await self.objects.create(f"{batch.tenant}/ended/{batch.id}", orjson.dumps(body))
        await self.clear(batch)

    async def clear(self, batch: Opened) -> None:
        """Its work is over."""
        await self._remove(batch.work)
        await self.objects.delete([batch.mark])

    async def body(self, batch: Opened) -> Json:
        """As it is now."""
        if (ended := await self.ended(batch)) is not None:
            return ended
        index, done = await self.index(batch), await self.done(batch)
        cancelled = await self.noted(batch, "cancel")
        finalizing = await self.noted(batch, "finalizing")
        if (ended := await self.ended(batch)) is not None:
            return ended  # meanwhile, so that what was read may lack a part
        times = {} if index is None else {"in_progress": index.at}
        status = "validating" if index is None else "in_progress"
        if finalizing is not None:
            times["finalizing"], status = finalizing["at"], "finalizing"
        if cancelled is not None:
            times["cancelling"], status = cancelled["at"], "cancelling"
        return batch.body(
            status,
            total=0 if index is None else index.lines,
            model=None if index is None else index.model,
            counts=added(done),
            times=times,
        )

    async def ids(self, tenant: str) -> list[str]:
        """The oldest first."""
        return [path for path, _ in await self.objects.below(f"{tenant}/batches")]

    async def cancel(self, batch: Opened) -> None:
        """Raises InvalidRequest: it has ended."""
        if (ended := await self.ended(batch)) is not None:
            raise InvalidRequest(
                f"The batch {batch.id} has the status {ended['status']}: it cannot be cancelled.",
                param="batch_id",
            )
        await self.note(batch, "cancel")

    async def remove_expired(self, tenant: str, keep_s: float) -> None:
        """What ended batches have left behind, and batches that are kept no longer."""
        open = {id for of, id in await self.marks() if of == tenant}
        known = set(await self.ids(tenant)) | set(await self.objects.folders(f"{tenant}/work"))
        for id in known - open:
            age_s = time.time() - created_s(id, PREFIX)
            if age_s > WINDOW_S:
                await self._remove(f"{tenant}/work/{id}")
            if age_s > keep_s:
                await self.objects.delete([f"{tenant}/ended/{id}", f"{tenant}/batches/{id}"])

    async def _remove(self, folder: str) -> None:
        found = await self.objects.below(folder)
        await self.objects.delete([f"{folder}/{path}" for path, _ in found])


def new_batch_id() -> str:
    return new_id(PREFIX)


def added(done: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
    return sum(each for each, _ in done.values()), sum(each for _, each in done.values())
