"""What upstream streams: one object a request, which each response brings up to date."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Logprob:
    logprob: float
    rank: int | None = None


@dataclass(slots=True)
class CompletionOutput:
    index: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    finish_reason: str | None = None
    _last_token_ids_len: int = field(default=0, init=False, repr=False)
    _last_logprobs_len: int = field(default=0, init=False, repr=False)

    @property
    def token_ids_diff(self) -> list[int]:
        return self.token_ids[self._last_token_ids_len :]

    @property
    def logprobs_diff(self) -> list[dict[int, Logprob]]:
        return self.logprobs[self._last_logprobs_len :]


@dataclass(slots=True)
class Response:
    """`error` ends a request in the middle; a finish reason ends it well."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    error: str | None = None
    cached_tokens: int = 0


class GenerationResult:
    """Belongs to the event loop that runs when it is made, as upstream's does."""

    def __init__(self, request_id: int, executor: Any) -> None:
        self.request_id = request_id
        self.cached_tokens = 0
        self._outputs = [CompletionOutput(0)]
        self._executor = executor
        self._done = False
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Response] = asyncio.Queue()

    @property
    def outputs(self) -> list[CompletionOutput]:
        return self._outputs

    @property
    def finished(self) -> bool:
        return self._done

    def abort(self) -> None:
        self._executor.abort_request(self.request_id)

    def put(self, response: Response) -> None:
        """From the executor's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._queue.put_nowait, response)

    def __aiter__(self) -> GenerationResult:
        return self

    async def __anext__(self) -> GenerationResult:
        if self._done:
            raise StopAsyncIteration
        self._handle(await self._queue.get())
        self._executor.handle_background_error()
        return self

    def _handle(self, response: Response) -> None:
        if response.error is not None:
            raise RuntimeError(response.error)
        output = self._outputs[0]
        output._last_token_ids_len = len(output.token_ids)
        output.token_ids += response.ids
        if response.logprobs is not None:  # else the last ones stay the newest
            output._last_logprobs_len = len(output.logprobs)
            output.logprobs += response.logprobs
        self.cached_tokens = response.cached_tokens
        self._done = response.finish_reason is not None
        output.finish_reason = response.finish_reason


class IterationResult:
    """Runs out at a time-out, and stays so until it is marked undone. With a time-out of 0 it
    raises instead, as upstream's queue does.
    """

    def __init__(self) -> None:
        self._done = False
        self._timeout: float | None = None
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def set_timeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def mark_undone(self) -> None:
        self._done = False

    def put(self, iteration: dict[str, Any]) -> None:
        """From the executor's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._queue.put_nowait, iteration)

    def __aiter__(self) -> IterationResult:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self._done:
            raise StopAsyncIteration
        if self._queue.empty():  # not wait_for, which may lose a cancellation before Python 3.12
            await asyncio.sleep(self._timeout or 0)
        if self._queue.empty():
            self._done = True
            if self._timeout == 0:
                raise asyncio.QueueEmpty
            raise StopAsyncIteration
        return self._queue.get_nowait()
