"""Accepts the connections of a proxy with several processes, and hands each to a worker.

The worker with the fewest open connections gets the next one. Workers that accept by themselves
get unequal shares, because the kernel tends to wake the same one. Called by `workers`; the
worker's end is `intake`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from triton_openai.proxy.http_server.draining import QUEUE_S, accept_waiting

BACKLOG = 2048
ACCEPTED_PER_TURN = 16  # of the event loop
MOST_UNTAKEN = 16  # by one worker; further connections wait in the kernel's queue
LATE_S = 0.5  # a worker that has taken nothing for so long comes after all others
PAUSE_S = 1.0  # after a failure, such as too many open files
POLL_S = 0.005
REPORTS_BYTES = 4096
HANDED = b"c"  # a stream socket passes a descriptor only with at least one byte


class Recipient:
    """A running worker. It reports a connection as taken before it reads from it.

    Until then the launcher keeps a duplicate: if the worker dies, another one gets the connection.
    """

    def __init__(self, channel: socket.socket, clock: Callable[[], float]) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._clock = clock
        self._untaken: deque[socket.socket] = deque()
        self._taken = 0
        self._open = 0
        self._unread = b""
        self._moved_at = 0.0
        self._is_taking = True

    @property
    def has_room(self) -> bool:
        return self._is_taking and len(self._untaken) < MOST_UNTAKEN

    @property
    def has_untaken(self) -> bool:
        return bool(self._untaken)

    @property
    def load(self) -> tuple[bool, int]:
        """A sort key: the worker with the smallest gets the next connection."""
        is_late = self.has_untaken and self._clock() - self._moved_at > LATE_S
        return is_late, self._open + len(self._untaken)

    def give(self, connection: socket.socket) -> None:
        """
        Raises:
            OSError: the worker did not get it.
        """
        try:
            socket.send_fds(self._channel, [HANDED], [connection.fileno()])
        except (BrokenPipeError, ConnectionResetError):
            self._is_taking = False
            raise
        if not self._untaken:
            self._moved_at = self._clock()
        self._untaken.append(connection)

    def read_reports(self, reports: bytes) -> list[socket.socket]:
        """Reads `intake`'s last report; returns the connections that the worker will not take."""
        complete, newline, self._unread = (self._unread + reports).rpartition(b"\n")
        if not newline:
            return []
        taken, self._open, is_taking = map(int, complete.rpartition(b"\n")[2].split())
        for _ in range(taken - self._taken):
            self._untaken.popleft().close()
            self._moved_at = self._clock()
        self._taken = taken
        return [] if is_taking else self.end()

    def end(self) -> list[socket.socket]:
        """Closes the channel; returns the connections that the worker has not taken."""
        self._is_taking = False
        left = list(self._untaken)
        self._untaken.clear()
        self._channel.close()
        return left


class Handover:
    """Accepts connections and hands each to a worker. Owns the bound socket, which listens as soon
    as the first worker is ready.
    """

    def __init__(self, listening: socket.socket, say: Callable[[str], None]) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._say = say
        self._recipients: list[Recipient] = []
        self._accepted: deque[socket.socket] = deque()  # not yet handed to a worker
        self._is_accepting = False
        self._pausing: asyncio.TimerHandle | None = None

    @property
    def is_closed(self) -> bool:
        return self._listening.fileno() == -1

    async def serve(self, channel: socket.socket, reports: socket.socket) -> None:
        """Hands connections to a worker until its reports end; then closes the channel."""
        loop = asyncio.get_running_loop()
        recipient, has_ended = Recipient(channel, loop.time), loop.create_future()
        reports.setblocking(False)

        def read() -> None:
            if not self._has_read(recipient, reports):
                loop.remove_reader(reports)
                has_ended.set_result(None)

        self._recipients.append(recipient)
        if not self.is_closed:
            self._listening.listen(BACKLOG)
        self._hand_out()
        loop.add_reader(reports, read)
        try:
            await has_ended
        finally:
            loop.remove_reader(reports)
            self._recipients.remove(recipient)
            self._accepted.extend(recipient.end())
            self._hand_out()

    def _has_read(self, recipient: Recipient, reports: socket.socket) -> bool:
        """False at the end of the reports."""
        try:
            read = reports.recv(REPORTS_BYTES)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        self._accepted.extend(recipient.read_reports(read))
        self._hand_out()
        return bool(read)

    async def close(self) -> None:
        """Stops accepting, after the workers have taken the waiting connections."""
        loop = asyncio.get_running_loop()
        end = loop.time() + QUEUE_S
        if self._recipients and not self.is_closed:
            await accept_waiting(self._listening)
        self._stop_accepting()
        self._listening.close()
        while any(one.has_untaken for one in self._recipients) and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._pausing is None and self._accepted and (recipient := self._next()) is not None:
            try:
                recipient.give(self._accepted[0])
            except (BrokenPipeError, ConnectionResetError):
                continue
            except OSError as error:
                self._pause(error)
                return
            self._accepted.popleft()
        self._accept_or_not()

    def _accept_or_not(self) -> None:
        """Accepts while a worker has room; otherwise clients wait in the kernel's queue."""
        if self.is_closed and not self._recipients:
            while self._accepted:
                self._accepted.popleft().close()
        if self.is_closed or self._pausing is not None or self._next() is None:
            self._stop_accepting()
        elif not self._is_accepting:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)
            self._is_accepting = True

    def _next(self) -> Recipient | None:
        free = (recipient for recipient in self._recipients if recipient.has_room)
        return min(free, key=lambda recipient: recipient.load, default=None)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            if not self._is_accepting:
                return
            try:
                connection, _ = self._listening.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._pause(error)
                return
            self._accepted.append(connection)
            self._hand_out()

    def _pause(self, error: OSError) -> None:
        self._say(f"cannot accept a connection: {error}; trying again in {PAUSE_S:g} s")
        self._stop_accepting()
        self._pausing = asyncio.get_running_loop().call_later(PAUSE_S, self._end_pause)

    def _end_pause(self) -> None:
        self._pausing = None
        self._hand_out()

    def _stop_accepting(self) -> None:
        if self._is_accepting:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._is_accepting = False
