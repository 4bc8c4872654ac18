"""Triton as an engine: one decoupled stream per request, and the stop for it.

This folder is the only importer of grpc. When a stream is closed early, `stop` is sent to the
engine model, because Triton does not pass a cancel on to a running ensemble step; the stream then
ends by itself, because a cancel that coincides with the end of its request can crash tritonserver
(its issues 7368 and 8034). Errors are read from the stream's messages: with the header
`triton_grpc_error`, which ends a stream with a status, tritonserver 2.51 crashes when other
streams are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

import grpc
import structlog
from tritonclient.grpc import service_pb2_grpc
from typing_extensions import Self

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import DeadlineExceeded, ForeignAnswer, GuidePending, ModelUnavailable
from proxy.domain.model import Kind, ModelCard
from proxy.domain.output import BlockChanges, TokenDelta, Usage
from proxy.triton import codec, tensors
from proxy.triton.dialects.dialect import Read
from proxy.triton.dialects.recognition import DIALECTS, OWN
from proxy.triton.errors import (
    STUB_LATE,
    error_of_message,
    error_of_status,
    foreign_answer,
    malformed,
)
from proxy.triton.local_tokenizer import as_text
from proxy.triton.streams.lean_http2 import LeanHttp2Streams, LeanOptions
from proxy.triton.streams.leases import LeaseTerms
from proxy.triton.streams.link import RELEASE_TIMEOUT_S, LeanStream, Metadata, StreamFailed
from proxy.triton.target import Target, channel

logger = structlog.get_logger(__name__)

T = TypeVar("T")
STOP_TIMEOUT_S = 5.0
MAX_WAIT_S = 60.0  # for a guide that is being compiled
FIRST_PAUSE_S = 0.02  # before the request is sent again; doubled with each further time
LONGEST_PAUSE_S = 0.1


class TritonClient:
    """Streams and their stops use our own HTTP/2 reader; the unary calls on `stub` use grpc.aio.

    max_age_s: of the connection that carries streams, see LeanOptions.
    """

    def __init__(self, target: Target, *, max_age_s: float | None = None) -> None:
        self.target = target.address
        self.restricted_metadata = target.restricted_metadata
        self._target = target
        self._streams = LeanHttp2Streams(target, LeanOptions(max_age_s=max_age_s))
        self._background: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        """Binds it to the running event loop. Connections are made when they are needed."""
        self._resources = AsyncExitStack()
        enter = self._resources.enter_async_context
        opened = await enter(channel(self._target))
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(opened)
        await enter(self._streams)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Waits for stops that are being sent, then closes the connections."""
        if self._background:
            await asyncio.wait(self._background, timeout=STOP_TIMEOUT_S)
        await self._resources.aclose()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        """See domain.engine.Engine. The call's deadline is later than the request's, because the
        server cancels a call at its deadline, and a stop must come first.

        Raises:
            ForeignAnswer: Triton handed us another request's answer. It is being restarted.
        """
        model = request.model
        dialect, prompt_tokens = OWN, None
        if (adopted := model.facts.adopted) is not None:
            dialect = DIALECTS[adopted.kind]
            request, prompt_tokens = await as_text(request)
        message = dialect.encode(request)
        terms: LeaseTerms | None = None
        if model.facts.has_leases:
            call = partial(codec.encode_lease, request)
            terms = LeaseTerms(model.facts.engine_model, call)
        # Triton traces every request that has a trace context, sampled or not (tracer.cc at 2.51)
        parent = None if request.stage is None else request.stage.traceparent
        metadata: Metadata = () if parent is None else (("traceparent", parent),)
        left_s, retries = request.timeout_s, None
        while True:
            timeout_s = left_s + RELEASE_TIMEOUT_S
            stream = self._streams.open(
                message, timeout_s=timeout_s, terms=terms, metadata=metadata
            )
            read = dialect.reader(request, prompt_tokens)
            answer = _EchoedAnswer() if request.echoes_prompt else None
            has_begun = has_ended = False  # what has ended in the engine needs no stop
            try:
                async for response in stream:
                    has_begun = True
                    if response.error_message:
                        has_ended = True
                        reason = response.error_message
                        error = dialect.error(reason, request)
                        raise error or error_of_message(reason, request.id)
                    found = read(response.infer_response)
                    if found.delta is not None:
                        has_ended = found.delta.finish is not None
                        if answer is not None:
                            answer.count(found.delta)
                        yield found.delta
                    if found.is_final:
                        return
                return
            except GuidePending as error:
                pending = error
            except ModelUnavailable as error:
                if isinstance(error, ForeignAnswer) or STUB_LATE.search(error.detail or ""):
                    self._end_detokenizer(stream, request)
                raise
            except codec.ForeignReceipt as error:
                self._end_detokenizer(stream, request)
                raise foreign_answer(str(error)) from error
            except StreamFailed as error:
                raise error_of_status(error.code, error.details) from error
            except codec.MalformedResponse as error:
                raise malformed(str(error)) from error
            finally:
                if has_ended:
                    stream.release()
                else:
                    self._stop(stream, request, read, answer, has_begun=has_begun)
            retries = retries or GuideRetries(request.timeout_s)
            left_s = await retries.wait(pending)

    async def block_changes(self, engine: str, position: int) -> BlockChanges:
        """What has changed in the KV cache of an engine model since an earlier answer's position.

        Raises ProxyError.
        """
        question = codec.encode_blocks_question(engine, position)
        stream = self._streams.open(question, timeout_s=STOP_TIMEOUT_S)
        changes: BlockChanges | None = None
        try:
            async for response in stream:
                if response.error_message:
                    raise error_of_message(response.error_message, "")
                changes = codec.decode_block_changes(response.infer_response) or changes
        except StreamFailed as error:
            raise error_of_status(error.code, error.details) from error
        except codec.MalformedResponse as error:
            raise malformed(str(error)) from error
        finally:
            stream.release()
        if changes is None:
            raise malformed("an answer without changes of a KV cache")
        return changes

    def _end_detokenizer(self, stream: LeanStream, request: EngineRequest) -> None:
        """Has Triton restarted, over the connection of `stream`, so that it is this Triton."""
        if tensors.has_receipts(request.model) or request.model.facts.pooling is not None:
            message = codec.encode_end_of_detokenizer(request.model)
            end = stream.open_sibling(message, timeout_s=STOP_TIMEOUT_S)
            self._in_background(_drained(end))

    async def end_detokenizer(self, model: ModelCard) -> None:
        """Has Triton restarted, because a unary call received another request's answer."""
        message = codec.encode_end_of_detokenizer(model)
        with contextlib.suppress(grpc.aio.AioRpcError):  # its process ends before it answers
            await self.stub.ModelInfer(message, timeout=STOP_TIMEOUT_S)

    def _stop(
        self,
        stream: LeanStream,
        request: EngineRequest,
        read: Read,
        answer: _EchoedAnswer | None,
        *,
        has_begun: bool,
    ) -> None:
        """Sends a stop, and leaves the stream to its end. The request's record gets what comes
        until then, unless another stream continues this one. A model that takes no stop sees a
        cancel.

        Our engines remember a stop that arrives before its request. NVIDIA's C++ backend ignores
        one; a cancel reaches such a request between two steps of the ensemble.
        """
        facts = request.model.facts
        if (message := DIALECTS[facts.kind].stop(request)) is None:
            stream.cancel()
            return
        stop = stream.open_sibling(message, timeout_s=STOP_TIMEOUT_S)
        stage = request.stage
        if not has_begun and (tensors.is_cpp(facts) or facts.kind is Kind.CPP):
            stream.cancel()
        elif stage is None:
            stream.release()
        else:
            stream.end_soon()
            late = self._in_background(_late_usage(stream, read, answer))
            stage.record.late.append((stage, late))
        self._in_background(_finish_stop(stop, request.id))

    def _in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs independently of the request, which may be cancelled at any point."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _drained(stream: LeanStream) -> None:
    """Its failure is expected: the process that would answer ends."""
    with contextlib.suppress(StreamFailed):
        async for _ in stream:
            pass


class _EchoedAnswer:
    """Counts the tokens of an answer, which come behind those of its prompt."""

    def __init__(self) -> None:
        self._left = 0  # tokens of the prompt that are still to come

    def count(self, delta: TokenDelta) -> int:
        """How many tokens of the next delta belong to the answer."""
        if delta.prompt_tokens is not None:  # the first
            self._left = delta.prompt_tokens
        of_prompt = min(self._left, len(delta.token_bytes))
        self._left -= of_prompt
        return len(delta.token_bytes) - of_prompt


async def _late_usage(stream: LeanStream, read: Read, answer: _EchoedAnswer | None) -> Usage:
    """What a stopped engine sent until it had the stop. One message in a turn of the event loop."""
    usage = Usage()
    try:
        with contextlib.suppress(StreamFailed, codec.MalformedResponse, codec.ForeignReceipt):
            async for response in stream:
                if (delta := read(response.infer_response).delta) is not None:
                    tokens = len(delta.token_bytes) if answer is None else answer.count(delta)
                    prompt = delta.prompt_tokens or 0
                    usage += Usage(prompt_tokens=prompt, completion_tokens=tokens)
                await asyncio.sleep(0)
    finally:
        stream.release()
    return usage


async def _finish_stop(stop: LeanStream, request_id: str) -> None:
    """Logs a failure, after which the engine continues to its token limit."""
    try:
        async for _ in stop:
            pass
    except StreamFailed as error:
        logger.warning(
            "stop failed",
            request_id=request_id,
            error=error.details,
            advice="nothing: the engine ends at the request's token limit or deadline",
        )


class GuideRetries:
    """Sends one request again while its guide is being compiled, which the tokenizer reports within
    a tenth of a second, instead of holding up other prompts. Made when it has reported that.
    """

    def __init__(self, timeout_s: float) -> None:
        self._began = asyncio.get_running_loop().time()
        self._timeout_s = timeout_s
        self._pause_s = FIRST_PAUSE_S

    async def wait(self, pending: GuidePending) -> float:
        """Returns when the next attempt is due: what is left of `timeout_s` for it.

        Raises:
            DeadlineExceeded: the request's time is over.
            GuidePending: MAX_WAIT_S is over; this is `pending`.
        """
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        waited_s = asyncio.get_running_loop().time() - self._began
        if waited_s > MAX_WAIT_S:
            raise pending
        if waited_s >= self._timeout_s:
            raise DeadlineExceeded("The request took longer than allowed and was stopped.")
        return self._timeout_s - waited_s
