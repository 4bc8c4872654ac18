"""An answer that grows while it is generated, with any number of readers. Used by `relay`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import islice

from proxy.state.answer import (
    Head,
    JoinRefused,
    Notice,
    OpenAnswer,
    Outcome,
    Reason,
    check_resumption,
)
from proxy.state.streams import AT_ONCE, StreamLost


class MemoryBudget:
    """The bytes of all recordings of one process."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self.most = most


class Reader(OpenAnswer):
    """An answer of this process, as one request reads it.

    at: the number of parts that it has taken, or that its client had already. is_counted: whether
    it keeps the generation running; one that only copies the answer does not.
    """

    def __init__(
        self, recording: Recording, after: int, outcome: Outcome, *, is_counted: bool
    ) -> None:
        self.outcome = outcome
        self.at = self._after = after
        self.is_counted = is_counted
        self.is_cut = False
        self._recording = recording

    async def head(self) -> Head:
        head = await self._recording.began()
        check_resumption(self._after, head, self._recording.count)
        return head

    def parts(self) -> AsyncGenerator[Sequence[bytes] | Notice, None]:
        return self._recording.parts(self)

    def shut_down(self) -> bool:
        task = self._recording.task
        return task is not None and (task.done() or task.cancel())

    async def aclose(self) -> None:
        self._recording.leave(self)


class Recording:
    """Each part is kept once. Where one answer, or all together, have no more room, the parts that
    every reader has are dropped; then the slowest readers are cut off, but never the fastest: the
    generation waits for it. An answer without its beginning can be joined by nobody, and is not
    kept.

    is_private: nothing of it may leave this process; final when the head is there. task: generates
    it.
    """

    def __init__(self, budget: MemoryBudget, most_bytes: int) -> None:
        self.head: Head | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_complete = self.is_lost = self.is_private = False
        self.held_bytes = 0  # in memory
        self._is_full = False
        self._budget = budget
        self._most_bytes = most_bytes
        self._parts: deque[bytes] = deque()
        self._begin = 0  # number of the first part that is still there
        self._notice = Notice(b"")
        self._readers: set[Reader] = set()
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        """How many parts there were so far."""
        return self._begin + len(self._parts)

    @property
    def is_whole(self) -> bool:
        """Whether it still has its beginning."""
        return not self._begin

    @property
    def readers(self) -> int:
        return sum(reader.is_counted for reader in self._readers)

    def readers_changed(self) -> None:
        """Called when the number of readers may have changed."""

    def enter(
        self, after: int, outcome: Outcome = Outcome.JOINED, *, is_counted: bool = True
    ) -> Reader:
        """
        Raises:
            JoinRefused: the parts that the reader wants are gone, or there were never so many.
        """
        if self.head is not None:
            check_resumption(after, self.head, self.count)
        if after < self._begin:
            raise JoinRefused(Reason.NOT_KEPT if after else Reason.TOO_LARGE)
        reader = Reader(self, after, outcome, is_counted=is_counted)
        self._readers.add(reader)
        self.readers_changed()
        self._change()
        return reader

    def count_in(self, reader: Reader, is_counted: bool) -> None:
        """Lets a reader that copies the answer stand for those who read the copy, or no longer."""
        if reader.is_counted is not is_counted:
            reader.is_counted = is_counted
            self.readers_changed()

    def leave(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
            self.readers_changed()
            self._change()

    def begin(self, head: Head) -> None:
        self.head = head
        self._change()

    async def append(self, part: bytes) -> None:
        """Waits while there is no room, and the fastest reader still needs what is there."""
        while not self._has_room(len(part)):
            if not self._drop_oldest():
                self._is_full = True
                await self._changed.wait()
        self._is_full = False
        self._parts.append(part)
        self._hold(len(part))
        self._change()

    def notice(self, data: bytes) -> None:
        """Shows a comment to the readers that have all parts."""
        self._notice = Notice(data)
        self._change()

    def complete(self) -> None:
        self.is_complete = True
        self._change()

    def lose(self) -> None:
        """The generation has ended without the end of the answer."""
        self.is_lost = True
        self._change()

    def clear(self) -> None:
        """Gives its memory back, unless somebody still reads it."""
        if not self._readers:
            self.drop()

    def drop(self) -> None:
        """Gives its memory back; whoever still reads it loses the rest."""
        self._begin = self.count
        self._parts.clear()
        self._hold(-self.held_bytes)
        self._change()

    async def began(self) -> Head:
        """Raises StreamLost."""
        while self.head is None:
            if self.is_lost:
                raise StreamLost
            await self._changed.wait()
        return self.head

    async def parts(self, reader: Reader) -> AsyncGenerator[Sequence[bytes] | Notice, None]:
        """Raises StreamLost. A reader has taken a part when it asks for the next one."""
        notice = self._notice
        while True:
            if reader.is_cut or reader.at < self._begin:
                raise StreamLost
            if reader.at < self.count:
                at = reader.at - self._begin
                taken = list(islice(self._parts, at, at + AT_ONCE))
                yield taken
                reader.at += len(taken)
                if self._is_full:
                    self._change()
            elif self.is_complete:
                return
            elif self.is_lost:
                raise StreamLost
            elif notice is not self._notice:
                notice = self._notice
                yield notice
            else:
                await self._changed.wait()

    def _has_room(self, more: int) -> bool:
        """One part always fits, whatever the other recordings hold."""
        if not self.held_bytes:
            return True
        fits = self.held_bytes + more < self._most_bytes
        return fits and self._budget.bytes + more < self._budget.most

    def _hold(self, more: int) -> None:
        self.held_bytes += more
        self._budget.bytes += more

    def _drop_oldest(self) -> bool:
        """Drops one part; False if that would cut the fastest reader, or nobody reads."""
        if not self._readers:
            return False
        if min(reader.at for reader in self._readers) <= self._begin:
            if max(reader.at for reader in self._readers) < self.count:
                return False
            for reader in self._readers:
                reader.is_cut = reader.is_cut or reader.at <= self._begin
        self._begin += 1
        self._hold(-len(self._parts.popleft()))
        return True

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
