"""The streams of one queue that run, and those among them that can make room."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from itertools import islice

from proxy.scheduling.stream import Stream

LOOKED_AT = 16  # streams of a class, the newest first


class Running:
    """The engine runs as many as it has rows. The others, `spares`, wait in it for the next row."""

    def __init__(self) -> None:
        self.count = 0
        self.yielding = 0  # those of them that have to stop
        self.holding = 0  # those that have a row, and keep it
        self.spares: OrderedDict[Stream, None] = OrderedDict()
        self._priorities: list[int] = []  # with streams that may yield, ascending
        self._may_yield: dict[int, OrderedDict[Stream, None]] = {}

    @property
    def kept(self) -> int:
        return self.count - self.yielding

    def add(self, stream: Stream, *, has_row: bool) -> None:
        self.count += 1
        if has_row:
            self.holding += 1
        else:
            self.spares[stream] = None
        if stream.ticket.may_yield:
            priority = stream.ticket.priority
            if priority not in self._may_yield:
                insort(self._priorities, priority)
                self._may_yield[priority] = OrderedDict()
            self._may_yield[priority][stream] = None

    def get_row(self, stream: Stream) -> None:
        """A spare stream."""
        del self.spares[stream]
        self.holding += 1

    def remove(self, stream: Stream) -> None:
        self.count -= 1
        if stream.is_yielding:
            self.yielding -= 1
        else:
            self._drop(stream)

    def newest_below(self, priority: int, *, spare: bool = False) -> Stream | None:
        """The newest of the lowest class below this one: one that has a row, or a spare one."""
        for each in self._priorities[: bisect_left(self._priorities, priority)]:
            for stream in islice(reversed(self._may_yield[each]), LOOKED_AT):
                if (stream in self.spares) is spare and (spare or stream.can_yield):
                    return stream
        return None

    def yields(self, stream: Stream) -> None:
        """From now on its row counts as free."""
        self._drop(stream)
        stream.is_yielding = True
        self.yielding += 1

    def _drop(self, stream: Stream) -> None:
        if stream in self.spares:
            del self.spares[stream]
        else:
            self.holding -= 1
        if not stream.ticket.may_yield:
            return
        priority = stream.ticket.priority
        of_class = self._may_yield[priority]
        del of_class[stream]
        if not of_class:
            del self._may_yield[priority]
            del self._priorities[bisect_left(self._priorities, priority)]
