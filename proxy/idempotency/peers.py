"""Joins answers that another worker generates, over its Unix socket. Used by `file_records`.

A worker that was killed refuses the connection, and so is known to have ended. Nothing else is
proof of that: its claim must not be taken over because one of the two is busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import orjson

from triton_openai.proxy import background
from triton_openai.proxy.idempotency import frames
from triton_openai.proxy.idempotency.answer import (
    AnswerLost,
    Head,
    JoinRefused,
    Notice,
    OpenAnswer,
    Outcome,
    Reason,
)
from triton_openai.proxy.idempotency.frames import Kind
from triton_openai.proxy.idempotency.port import LocalAnswers
from triton_openai.proxy.idempotency.request import KeyedRequest

ENDED = (OSError, EOFError)
BACKLOG = 1024  # connections that were not accepted yet
TRIES = 200  # to connect, and to be heard
AGAIN_S = 0.05


class PeerServer:
    """Lets other workers read this worker's running answers. path: of its socket, in a folder that
    only the proxy's user may enter.
    """

    def __init__(self, path: Path, answers: LocalAnswers) -> None:
        self._path = path
        self._answers = answers
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(
            self._connected, str(self._path), backlog=BACKLOG
        )

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await background.end(self._tasks)
        self._path.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (*ENDED, ValueError):
            pass  # the other worker, or its client, has gone
        finally:
            self._tasks.discard(task)
            await _close(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, asked = await frames.read(reader)
        request, token = _request_of(asked)
        try:
            answer = await self._answers.join(request, token)
        except JoinRefused as error:
            frames.write(writer, Kind.REFUSED, error.reason.value.encode())
        except AnswerLost:
            frames.write(writer, Kind.LOST)
        else:
            frames.write(writer, Kind.ASK)  # joined: the head may take long
            sending = asyncio.create_task(_send(answer, writer))
            gone = asyncio.create_task(reader.read(1))  # nothing more is sent to this worker
            try:
                await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                await background.end((sending, gone))
                await answer.aclose()
            return
        await writer.drain()


async def _send(answer: OpenAnswer, writer: asyncio.StreamWriter) -> None:
    try:
        frames.write(writer, Kind.HEAD, (await answer.head()).as_json())
        async with contextlib.aclosing(answer.parts()) as parts:
            async for part in parts:
                is_notice = isinstance(part, Notice)
                data = part.data if isinstance(part, Notice) else part
                frames.write(writer, Kind.NOTICE if is_notice else Kind.PART, data)
                await writer.drain()
        frames.write(writer, Kind.END)
    except JoinRefused as error:
        frames.write(writer, Kind.REFUSED, error.reason.value.encode())
    except AnswerLost:
        frames.write(writer, Kind.LOST)
    with contextlib.suppress(OSError):
        await writer.drain()


class PeerAnswer:
    """An answer.OpenAnswer that another worker generates."""

    outcome = Outcome.JOINED

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def head(self) -> Head:
        kind, payload = await self._frame()
        if kind is not Kind.HEAD:
            raise AnswerLost
        return Head.of_json(payload)

    async def parts(self) -> AsyncGenerator[bytes | Notice, None]:
        while True:
            kind, payload = await self._frame()
            match kind:
                case Kind.PART:
                    yield payload
                case Kind.NOTICE:
                    yield Notice(payload)
                case Kind.END:
                    return
                case _:
                    raise AnswerLost

    def shut_down(self) -> bool:
        return False

    async def aclose(self) -> None:
        await _close(self._writer)

    async def _frame(self) -> tuple[Kind, bytes]:
        try:
            kind, payload = await frames.read(self._reader)
        except ENDED as error:
            raise AnswerLost from error
        if kind is Kind.REFUSED:
            raise JoinRefused(Reason(payload.decode()))
        return kind, payload

    async def ask(self, request: KeyedRequest, token: str) -> None:
        """
        Raises:
            JoinRefused.
            AnswerLost: the owner does not generate this answer.
            OSError, EOFError: the owner did not reply.
        """
        frames.write(self._writer, Kind.ASK, _asked(request, token))
        kind, payload = await frames.read(self._reader)
        if kind is Kind.REFUSED:
            raise JoinRefused(Reason(payload.decode()))
        if kind is not Kind.ASK:
            raise AnswerLost


async def join(owner: str, request: KeyedRequest, token: str, *, tries: int = TRIES) -> PeerAnswer:
    """
    Raises:
        JoinRefused: also where the owner lives, and cannot be reached.
        AnswerLost: the owner has ended, or does not generate this answer.
    """
    if not owner:  # without a socket: nobody but the process that claimed it knows of the claim
        raise AnswerLost
    for _ in range(tries):
        if (connected := _connected(owner)) is not None:
            answer = PeerAnswer(*await asyncio.open_unix_connection(sock=connected))
            try:
                await answer.ask(request, token)
            except ENDED:
                await answer.aclose()
            except BaseException:
                await answer.aclose()
                raise
            else:
                return answer
        await asyncio.sleep(AGAIN_S)
    raise JoinRefused(Reason.NOT_REACHED)


def _connected(owner: str) -> socket.socket | None:
    """Connects without waiting; None where the owner cannot be reached at present.

    Raises:
        AnswerLost: nobody listens there.
    """
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:  # this process has too many open files
        return None
    sock.setblocking(False)
    try:
        sock.connect(owner)
    except OSError as error:
        sock.close()
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):
            raise AnswerLost from error
        return None  # its backlog is full
    return sock


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _asked(request: KeyedRequest, token: str) -> bytes:
    digests = (request.id, request.tenant, request.body)
    return orjson.dumps([*(each.hex() for each in digests), request.after, token])


def _request_of(asked: bytes) -> tuple[KeyedRequest, str]:
    *digests, after, token = orjson.loads(asked)
    one, tenant, body = map(bytes.fromhex, digests)
    return KeyedRequest(id=one, tenant=tenant, body=body, after=after), token
