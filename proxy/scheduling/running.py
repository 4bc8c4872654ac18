"""The streams of one queue that run, and those among them that can make room."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator

from triton_openai.proxy.scheduling.stream import Stream


class Running:
    """count: streams that run. yielding: those of them that were told to stop."""

    def __init__(self) -> None:
        self.count = 0
        self.yielding = 0
        self._priorities: list[int] = []  # with streams that may yield, ascending
        self._may_yield: dict[int, OrderedDict[Stream, None]] = {}

    def add(self, stream: Stream) -> None:
        self.count += 1
        if stream.ticket.may_yield:
            priority = stream.ticket.priority
            if priority not in self._may_yield:
                insort(self._priorities, priority)
                self._may_yield[priority] = OrderedDict()
            self._may_yield[priority][stream] = None

    def remove(self, stream: Stream) -> None:
        self.count -= 1
        if stream.is_yielding:
            self.yielding -= 1
        elif stream.ticket.may_yield:
            self._drop(stream)

    def can_yield_to(self, priority: int) -> bool:
        """Whether a stream of a lower class can make room."""
        return bool(self._priorities) and self._priorities[0] < priority

    def choose_to_yield(self) -> Stream:
        """The newest of the lowest class."""
        return next(self.newest(self._priorities[0]))

    def newest(self, priority: int) -> Iterator[Stream]:
        """Those of the class that may yield, the newest first."""
        return reversed(self._may_yield.get(priority, OrderedDict()))

    def yields(self, stream: Stream) -> None:
        """From now on its row counts as free."""
        self._drop(stream)
        stream.is_yielding = True
        self.yielding += 1

    def _drop(self, stream: Stream) -> None:
        priority = stream.ticket.priority
        of_class = self._may_yield[priority]
        del of_class[stream]
        if not of_class:
            del self._may_yield[priority]
            del self._priorities[bisect_left(self._priorities, priority)]
