"""Runs the lines of all open batches where rows are idle. `batch_store` says in which order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256

import orjson
import structlog
from starlette.types import ASGIApp, Message
from typing_extensions import Self

from proxy import background
from proxy.api import errors
from proxy.api.batches import lines
from proxy.api.batches.batch_input import BatchInput
from proxy.api.batches.batch_store import PREFIX, TENANTS, BatchStore, Index, Opened, added
from proxy.api.batches.files import DAY_S, Files, created_s, new_id
from proxy.api.batches.lines import HEAD_BYTES, Answer, Line
from proxy.api.http.authentication import KNOWN_CALLER
from proxy.api.openai.field_types import Json
from proxy.domain.batch_line import BatchLine, current_line
from proxy.domain.errors import (
    ErrorCode,
    StoreUnavailable,
    unsupported,
)
from proxy.domain.identity import current_caller
from proxy.domain.usage import UsageStore
from proxy.state.answer import digest
from proxy.state.streams import Claim, StreamKey, StreamStore, StreamsUnavailable
from proxy.telemetry.metrics import BatchMetrics

logger = structlog.get_logger(__name__)

LOOK_S = 2.0
BEAT_S = 2.5
SWEEP_S = 3_600.0
MOST_BATCHES = 32  # that this process runs at once
MOST_WAITING = 64  # lines of a batch that were refused and are sent again; no more are begun then
MOST_TRIES = 5  # of a line whose generation fails with an error of ours
PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
READ_AT_ONCE = 8
EXPIRED = {
    "code": "batch_expired",
    "message": "This request could not be executed before the completion window expired.",
}
NO_STREAM = unsupported("A request of a batch has no stream and no background.", param="stream")
AWAY = (StoreUnavailable, StreamsUnavailable)


class Stopped(Exception):
    """The batch is cancelled, or has expired."""


class Gone(Exception):
    """Another process has ended the batch, or has the chunk."""


@dataclass(slots=True, eq=False)
class Run:
    """A batch that this process runs. status: what it ends with. waiting: lines that pause."""

    batch: Opened
    status: str = "completed"
    waiting: int = 0
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    claims: dict[int, Claim] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def stop(self, status: str) -> None:
        if not self.stopped.is_set():
            self.status = status
            self.stopped.set()


class BatchRunner:
    """`async with` runs them; then all claims are given up.

    app: answers a line as it answers a request. at_once: how many lines may run in this process.
    """

    def __init__(
        self,
        store: BatchStore,
        files: Files,
        claims: StreamStore,
        app: ASGIApp,
        usage: UsageStore | None,
        input: BatchInput,
        metrics: BatchMetrics,
        *,
        at_once: Callable[[], int],
    ) -> None:
        self._store = store
        self._files = files
        self._claims = claims
        self._app = app
        self._usage = usage
        self._input = input
        self._metrics = metrics
        self._at_once = at_once
        self._runs: dict[str, tuple[Run, asyncio.Task[None]]] = {}
        self._busy = 0
        self._freed = asyncio.Event()
        self._poked = asyncio.Event()
        self._swept_at = 0.0

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(each()) for each in (self._look_forever, self._beat)]
        return self

    async def __aexit__(self, *_: object) -> None:
        await background.end(self._tasks)
        runs, self._runs = self._runs, {}
        await background.end([task for _, task in runs.values()])

    def poke(self) -> None:
        """There is a new batch, or one is cancelled."""
        self._poked.set()

    async def _look_forever(self) -> None:
        while True:
            self._poked.clear()
            await self._quietly(self._look)
            try:
                await asyncio.wait_for(self._poked.wait(), LOOK_S)
            except asyncio.TimeoutError:
                continue

    async def _quietly(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except AWAY as error:
            logger.warning(
                "batches wait",
                error=getattr(error, "detail", None) or str(error),
                advice="look at FILES_URL, STORE_URL and LEDGER_URL: one of them does not answer",
            )

    async def _look(self) -> None:
        marks = await self._store.marks()
        self._metrics.open.set(len(marks))
        for tenant, id in marks:
            if (found := self._runs.get(id)) is not None:
                await self._see_stop(found[0])
            elif len(self._runs) < MOST_BATCHES:
                if (batch := await self._store.opened(tenant, id)) is not None:
                    run = Run(batch)
                    await self._see_stop(run)
                    task = asyncio.create_task(self._run(run))
                    self._runs[id] = run, task
                elif time.time() - created_s(id, PREFIX) > DAY_S / 24:  # it was never created
                    await self._store.objects.delete([f"open/{tenant.removeprefix(TENANTS)}/{id}"])

    async def _see_stop(self, run: Run) -> None:
        if await self._store.noted(run.batch, "cancel") is not None:
            run.stop("cancelled")
        elif time.time() > run.batch.expires_at:
            run.stop("expired")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._quietly(self._renew)
            if time.monotonic() - self._swept_at > SWEEP_S or not self._swept_at:
                self._swept_at = time.monotonic()
                await self._quietly(self._sweep)

    async def _renew(self) -> None:
        for run, _ in [*self._runs.values()]:
            for chunk, claim in [*run.claims.items()]:
                if not (await self._claims.renew(claim))[0]:
                    run.claims.pop(chunk, None)

    async def _sweep(self) -> None:
        for name in await self._store.objects.folders("tenants"):
            await self._files.remove_expired(f"{TENANTS}{name}")
            keep_s = self._files.limits.files_keep_days * DAY_S
            await self._store.remove_expired(f"{TENANTS}{name}", keep_s)

    async def _run(self, run: Run) -> None:
        is_over = False

        async def advance() -> None:
            nonlocal is_over
            is_over = await self._advance(run)

        try:
            while not is_over:
                await self._quietly(advance)
                if not is_over:
                    await asyncio.sleep(PAUSE_S)
        except Gone:
            pass
        except Exception:
            logger.exception(
                "a batch cannot run",
                id=run.batch.id,
                advice="this is a bug of the proxy: report it with this line",
            )
            await asyncio.sleep(LONGEST_PAUSE_S)
        finally:
            await background.end(run.tasks)
            for chunk in [*run.claims]:
                await self._release(run, chunk)
            self._runs.pop(run.batch.id, None)

    async def _advance(self, run: Run) -> bool:
        """Does what there is to do for this process. Whether the batch has ended."""
        batch, store = run.batch, self._store
        if await store.ended(batch) is not None:
            await store.clear(batch)
            return True
        if (index := await store.index(batch)) is None:
            async with self._claimed(run, -1) as is_mine:
                if not is_mine:
                    return False
                checked = await self._input.check(batch)
                if isinstance(checked, list):
                    await self._fail(batch, checked)
                    return True
                index = await store.keep_index(batch, checked)
        await self._run_chunks(run, index)
        done = await store.done(batch)
        if len(done) < len(index.chunks):
            return False
        async with self._claimed(run, -1) as is_mine:
            if is_mine:
                await self._finish(run, index)
            return is_mine

    async def _fail(self, batch: Opened, faults: Sequence[Json]) -> None:
        listed = {"object": "list", "data": faults}
        times = {"failed": int(time.time())}
        await self._store.end(batch, batch.body("failed", times=times, errors=listed))

    # the lines

    @asynccontextmanager
    async def _claimed(self, run: Run, chunk: int) -> AsyncIterator[bool]:
        """chunk: -1 for the batch as a whole."""
        is_mine = await self._claim(run, chunk)
        try:
            yield is_mine
        finally:
            if is_mine:
                await self._release(run, chunk)

    async def _claim(self, run: Run, chunk: int) -> bool:
        key = StreamKey(id=digest((run.batch.id, str(chunk))), tenant=digest((run.batch.tenant,)))
        claim = Claim(key, patience_s=0.0)
        if await self._claims.claim(claim, {}) is not None:
            return False
        run.claims[chunk] = claim
        return True

    async def _release(self, run: Run, chunk: int) -> None:
        if (claim := run.claims.pop(chunk, None)) is not None:
            try:
                await self._claims.release(claim)
            except StreamsUnavailable:
                return  # the lease ends by itself

    async def _run_chunks(self, run: Run, index: Index) -> None:
        """Begins a line whenever there is a place; returns when all chunks are tried, and those of
        this process are over.
        """
        chunks = []
        done = await self._store.done(run.batch)
        for chunk in range(len(index.chunks)):
            if chunk in done:
                continue
            begun = asyncio.get_running_loop().create_future()
            chunks.append(self._task(run, self._chunk(run, index, chunk, begun)))
            await asyncio.wait((chunks[-1], begun), return_when=asyncio.FIRST_COMPLETED)
        await _all(chunks)

    async def _chunk(self, run: Run, index: Index, chunk: int, begun: asyncio.Future[None]) -> None:
        """begun: done when all its lines are."""
        batch, objects = run.batch, self._store.objects
        async with self._claimed(run, chunk) as is_mine:
            if not is_mine:
                return
            if self._claims.is_shared and (
                chunk in await self._store.done(batch) or await self._store.ended(batch) is not None
            ):
                return  # another process had it until now
            data = await objects.read(f"{batch.work}/input", *index.span(chunk))
            if data is None:
                raise Gone
            has = {path for path, _ in await objects.below(f"{batch.work}/lines/{chunk:06}")}
            tasks = []
            for number, (_, text) in zip(
                index.numbers(chunk), lines.requests_of(data), strict=True
            ):
                if f"{number:07}" in has:
                    continue
                await self._free_place(lambda: run.waiting < MOST_WAITING)
                if chunk not in run.claims:  # it was lost, and another process has it
                    break
                self._busy += 1
                tasks.append(self._task(run, self._line(run, chunk, number, text)))
            if not begun.done():
                begun.set_result(None)
            await _all(tasks)
            if chunk in run.claims:
                await self._complete(run, index, chunk)

    def _task(self, run: Run, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        run.tasks.add(task)
        task.add_done_callback(run.tasks.discard)
        return task

    async def _free_place(self, has_room: Callable[[], bool] = lambda: True) -> None:
        """Its caller takes it before it waits for anything else."""
        while self._busy >= self._at_once() or not has_room():
            self._freed.clear()
            await self._freed.wait()

    def _give_place(self) -> None:
        self._busy -= 1
        self._freed.set()

    async def _complete(self, run: Run, index: Index, chunk: int) -> None:
        """Steps 3 and 4 of `batch_store`: all its lines are there."""
        batch, heads = run.batch, []
        for number in index.numbers(chunk):
            kept = await self._store.objects.read(batch.line(chunk, number), 0, HEAD_BYTES)
            if kept is None:
                raise Gone
            heads.append(lines.head_of(kept))
        rows = [head.row for head in heads if head.row is not None]
        if self._usage is not None and rows:
            await self._usage.add_once(f"{batch.id}:{chunk}", rows)
        failed = sum(head.has_failed for head in heads)
        completed = sum(head.has_text for head in heads) - failed
        await self._store.objects.create(
            f"{batch.work}/chunks/{chunk:06}.{completed}.{failed}", b""
        )

    async def _line(self, run: Run, chunk: int, number: int, text: bytes) -> None:
        """One line, with a place that was taken for it."""
        batch = run.batch
        left_s = max(batch.expires_at - time.time(), 1.0)
        charged = BatchLine(self._files.limits.batch_rate, left_s)
        current_caller.set(batch.caller)
        current_line.set(charged)
        is_kept = False
        try:
            (line,) = await self._input.parsed(batch, lines.read, [text])
            if not isinstance(line, Line):  # the index says that it is one
                raise ValueError(f"{batch.id}: {line.message}")
            id = f"batch_req_{sha256(f'{batch.id}:{number}'.encode()).hexdigest()[:24]}"
            try:
                answer = await self._answer(run, id, number, line, charged)
            except Stopped:
                self._drop(charged)
                is_expired = run.status == "expired"
                said = lines.text(id, line.custom_id, error=EXPIRED) if is_expired else b""
                answer = Answer(is_expired, None, said)
            kept = answer.kept()
            while True:
                try:
                    is_kept = await self._store.objects.create(batch.line(chunk, number), kept)
                    break
                except StoreUnavailable:
                    await asyncio.sleep(PAUSE_S)
            if is_kept:
                self._metrics.lines.labels(answer.outcome).inc()
        finally:
            if charged.charge is not None:
                charged.charge.settle(counts=is_kept)
            self._give_place()

    async def _answer(
        self, run: Run, id: str, number: int, line: Line, charged: BatchLine
    ) -> Answer:
        """Raises Stopped."""
        request_id = f"{run.batch.id}-{number}"
        if line.wants_stream:
            status, body = 400, orjson.dumps(errors.body_of(NO_STREAM))
            return Answer(
                True, None,
                lines.text(id, line.custom_id, status=status, request_id=request_id, body=body),
            )  # fmt: skip
        pause_s, tries = PAUSE_S, 0
        while True:
            if run.stopped.is_set():
                raise Stopped
            status, body = await self._asked(run, request_id, line.body)
            # one that is refused before it runs waits for a model that is away
            tries += status == 500 or (charged.charge is not None and status > 500)
            if not _comes_again(status, body) or tries >= MOST_TRIES:
                row = None if charged.charge is None else await charged.charge.row()
                said = lines.text(
                    id, line.custom_id, status=status, request_id=request_id, body=body
                )
                return Answer(status >= 400, row, said)
            self._drop(charged)
            run.waiting += 1
            self._give_place()
            try:
                await asyncio.wait_for(run.stopped.wait(), pause_s)
            except asyncio.TimeoutError:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                await self._free_place()
            finally:
                run.waiting -= 1
                self._busy += 1

    def _drop(self, charged: BatchLine) -> None:
        """Gives back what its generation has reserved."""
        if charged.charge is not None:
            charged.charge.settle(counts=False)
            charged.charge = None

    async def _asked(self, run: Run, request_id: str, body: bytes) -> tuple[int, bytes]:
        """The application's answer to a request. Raises Stopped."""
        batch, unread = run.batch, [body]
        status, pieces = 0, list[bytes]()

        async def receive() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await run.stopped.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                pieces.append(bytes(message.get("body", b"")))

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": batch.endpoint,
            "raw_path": batch.endpoint.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [
                (b"content-type", b"application/json"),
                (b"x-request-id", request_id.encode()),
            ],
            "client": (batch.caller_name, 0),
            "server": None,
            KNOWN_CALLER: batch.caller,
        }
        await self._app(scope, receive, send)
        if not status:  # the client, which we are, has left
            raise Stopped
        return status, b"".join(pieces)

    # the end

    async def _finish(self, run: Run, index: Index) -> None:
        """Step 6 of `batch_store`."""
        batch, store = run.batch, self._store
        end = await store.note(batch, "finalizing", status=run.status)
        counts = added(await store.done(batch))
        tokens = dict.fromkeys(("prompt", "cached", "output", "reasoning"), 0)
        files: dict[str, Json | None] = {"output": None, "error": None}

        async def texts(failed: bool) -> AsyncIterator[bytes]:
            for chunk in range(len(index.chunks)):
                numbers = index.numbers(chunk)
                for at in range(0, len(numbers), READ_AT_ONCE):
                    paths = [batch.line(chunk, each) for each in numbers[at : at + READ_AT_ONCE]]
                    for kept in await asyncio.gather(*map(store.objects.read, paths)):
                        if kept is None:
                            raise Gone
                        head = lines.head_of(kept)
                        if head.has_failed is not failed:
                            continue
                        if head.row is not None:
                            for name in tokens:
                                tokens[name] += getattr(head.row, f"{name}_tokens")
                        yield kept[head.size :]

        for (name, failed), count in zip((("output", False), ("error", True)), counts, strict=True):
            if not count:
                continue
            mark = sha256(f"{batch.id}:{name}".encode()).hexdigest()[:13]
            id, size = new_id("file-", mark, end["at"]), 0

            async def counted(found: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
                nonlocal size
                async for text in found:
                    size += len(text)
                    yield text

            await store.objects.write(f"{batch.tenant}/files/{id}", counted(texts(failed)))
            files[name] = await self._files.publish(
                batch.tenant,
                id,
                name=f"{batch.id}_{name}.jsonl",
                size=size,
                purpose="batch_output",
                keep_s=batch.keep_s,
                at=end["at"],
            )
        status: str = end["status"]
        times = {"in_progress": index.at, "finalizing": end["at"], status: int(time.time())}
        if (cancelled := await store.noted(batch, "cancel")) is not None:
            times["cancelling"] = cancelled["at"]
        body = batch.body(
            status,
            total=index.lines,
            model=index.model,
            counts=counts,
            times=times,
            usage=_usage(tokens),
            **{f"{name}_file_id": file and file["id"] for name, file in files.items()},
        )
        await store.end(batch, body)


async def _all(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Waits for the end of all, then raises what one of them has raised."""
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        if found is not None:
            raise found


def _comes_again(status: int, body: bytes) -> bool:
    """Whether the same request may succeed later."""
    if status != ErrorCode.RATE_LIMIT_EXCEEDED.status:
        return status >= 500
    code = orjson.loads(body)["error"]["code"]
    return bool(code != ErrorCode.REQUEST_EXCEEDS_LIMIT.value)


def _usage(tokens: dict[str, int]) -> Json:
    return {
        "input_tokens": tokens["prompt"],
        "input_tokens_details": {"cached_tokens": tokens["cached"]},
        "output_tokens": tokens["output"],
        "output_tokens_details": {"reasoning_tokens": tokens["reasoning"]},
        "total_tokens": tokens["prompt"] + tokens["output"],
    }
