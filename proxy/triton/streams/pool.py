"""The links of the lean transport: which one takes a stream, and when another is opened."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from grpc import StatusCode

from triton_openai.proxy.triton.http2.status import Status
from triton_openai.proxy.triton.streams.lean_stream import LeanStream
from triton_openai.proxy.triton.streams.link import Link, Owner

MAX_REPLAYS = 1  # of a call that the server has not begun, as gRPC does (gRFC A6)
JITTER = 0.1  # of a link's age
MAX_LINKS = 8  # more than one only where the peer limits its streams


class Pool:
    """Carries the streams that wait for a link; one that waits ends with a failure to connect.

    `connect` gives a link that is ready, or raises ConnectionError. After a failure there is a
    pause; `backoff_s` are the first one and the longest. A link older than `max_age_s` hands over
    to another, so that servers that came later behind the address get work, too.
    """

    def __init__(
        self,
        connect: Callable[[Owner], Awaitable[Link]],
        backoff_s: tuple[float, float],
        max_age_s: float | None = None,
    ) -> None:
        self._connect = connect
        self._max_age_s = max_age_s
        self._first_pause_s, self._longest_pause_s = backoff_s
        self._pause_s = 0.0
        self._links: list[Link] = []
        self._open: set[Link] = set()  # those that the peer leaves among them
        self._waiting: dict[LeanStream, None] = {}  # in order
        self._timers: dict[Link, asyncio.TimerHandle] = {}
        self._growing: asyncio.Task[None] | None = None
        self._owner = Owner(changed=self._look_at, elsewhere=self.place, refused=self._replay)

    async def close(self) -> None:
        """Ends all streams."""
        if self._growing is not None:
            self._growing.cancel()
            await asyncio.wait([self._growing])
            self._growing = None
        self._fail_waiting("the proxy closes its connections")
        await asyncio.gather(*(link.close() for link in self._open))

    def place(self, stream: LeanStream) -> None:
        """Starts it, now or when a link has room."""
        stream.carrier = self
        self._waiting[stream] = None
        self._place_waiting()

    def cancel(self, stream: LeanStream) -> None:
        del self._waiting[stream]

    def took(self, stream: LeanStream) -> None:
        """Nothing comes while a stream waits."""

    def _place_waiting(self) -> None:
        for link in self._links:
            while self._waiting and link.has_room:
                stream = next(iter(self._waiting))
                del self._waiting[stream]
                link.start(stream)
        if self._waiting and self._growing is None and len(self._links) < MAX_LINKS:
            self._growing = asyncio.get_running_loop().create_task(self._grow())

    async def _grow(self, old: Link | None = None) -> None:
        """By one, which takes over from `old`."""
        await asyncio.sleep(self._pause_s)
        try:
            link = await self._connect(self._owner)
        except ConnectionError as error:
            self._pause_s = min(max(self._first_pause_s, 2 * self._pause_s), self._longest_pause_s)
            if not self._links:
                self._fail_waiting(str(error))
        else:
            self._pause_s = 0.0
            self._add(link)
            if old is not None and old in self._links:
                self._links.remove(old)
                old.retire()
        self._growing = None
        self._place_waiting()

    def _add(self, link: Link) -> None:
        self._links.append(link)
        self._open.add(link)
        link.closed.add_done_callback(lambda _: self._forget(link))
        self._let_age(link)

    def _forget(self, link: Link) -> None:
        self._open.discard(link)
        if timer := self._timers.pop(link, None):
            timer.cancel()

    def _let_age(self, link: Link) -> None:
        """Not all proxies connect anew at once."""
        if self._max_age_s is not None:
            age_s = self._max_age_s * random.uniform(1 - JITTER, 1 + JITTER)
            loop = asyncio.get_running_loop()
            self._timers[link] = loop.call_later(age_s, self._renew, link)

    def _renew(self, old: Link) -> None:
        """The old one stays until there is a new one. Where that fails, it is tried again later."""
        if old not in self._links:
            return
        self._let_age(old)
        if self._growing is None:
            self._growing = asyncio.get_running_loop().create_task(self._grow(old))

    def _fail_waiting(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for stream in waiting:
            stream.end(Status(StatusCode.UNAVAILABLE, reason))

    def _look_at(self, link: Link) -> None:
        """A call of it has ended, or the peer has said how many it takes."""
        if link.is_leaving:
            if link in self._links:
                self._links.remove(link)
            link.close_when_idle()
        self._place_waiting()

    def _replay(self, stream: LeanStream, reason: str) -> None:
        if not stream.request or stream.replays == MAX_REPLAYS:
            stream.end(Status(StatusCode.UNAVAILABLE, reason))
        else:
            stream.replays += 1
            self.place(stream)
