"""Stop strings in an answer's text. Called by `output_parser`, and by `answer_text` without one.

They are found by Aho-Corasick: memory linear in them, constant work per character.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from functools import lru_cache

ROOT = 0
_CODE_POINTS = 21  # bits


class Automaton:
    """Equal stop strings share one, since all choices of a request search for the same ones.

    Nodes are numbers; at ROOT the end of the text begins no mark.

    depth: by node, how many characters at the end of the text begin a mark. complete: by node, the
    length of the longest mark that the text ends with, 0 for none.
    """

    __slots__ = ("_edges", "_first", "_shorter", "complete", "depth")

    def __init__(self, marks: tuple[str, ...]) -> None:
        self._edges: dict[int, int] = {}  # by node and character
        self._shorter = [ROOT]  # the node of the longest proper suffix that begins a mark
        self.depth = [0]
        self.complete = [0]
        first = "".join(sorted({mark[0] for mark in marks}))
        self._first = re.compile(f"[{re.escape(first)}]")
        for mark in marks:
            self._add(mark)
        self._link()

    def read(self, node: int, text: str) -> tuple[int, int]:
        """Reads `text` up to the end of the first mark.

        Returns:
            The node reached, and how many characters were read.
        """
        at, end = 0, len(text)
        while at < end:
            if node == ROOT:
                found = self._first.search(text, at)
                if found is None:
                    return ROOT, end
                at = found.start()
            node = self._after(node, ord(text[at]))
            at += 1
            if self.complete[node]:
                break
        return node, at

    def _after(self, node: int, char: int) -> int:
        edges = self._edges
        while (found := edges.get(node << _CODE_POINTS | char)) is None:
            if node == ROOT:
                return ROOT
            node = self._shorter[node]
        return found

    def _add(self, mark: str) -> None:
        node = ROOT
        for char in map(ord, mark):
            edge = node << _CODE_POINTS | char
            if edge not in self._edges:
                self._edges[edge] = len(self.depth)
                self.depth.append(self.depth[node] + 1)
                self.complete.append(0)
                self._shorter.append(ROOT)
            node = self._edges[edge]
        self.complete[node] = len(mark)

    def _link(self) -> None:
        """Breadth first, so that a node's shorter ones are linked before it."""
        below: dict[int, list[tuple[int, int]]] = {}
        for edge, child in self._edges.items():
            node, char = edge >> _CODE_POINTS, edge & ((1 << _CODE_POINTS) - 1)
            below.setdefault(node, []).append((char, child))
        waiting = deque([ROOT])
        while waiting:
            node = waiting.popleft()
            for char, child in below.get(node, ()):
                if node != ROOT:
                    self._shorter[child] = self._after(self._shorter[node], char)
                if not self.complete[child]:
                    self.complete[child] = self.complete[self._shorter[child]]
                waiting.append(child)


@lru_cache(maxsize=32)
def automaton(marks: tuple[str, ...]) -> Automaton:
    """`marks`: at least one, none of them empty."""
    return Automaton(marks)


class StopMatcher:
    """Passes text on up to the first stop string to be complete, which it swallows. Stop strings
    are found wherever the text is cut, and never leaked.

    includes_stop: passes that stop string on, too. stop: the one that was complete. is_on: whether
    it looks for stop strings. unsent: how many characters were pushed and not passed on.

    Of stop strings that end at the same place the longest counts, so the result does not depend
    on how the text is cut. Text that may be the start of a stop string is held back.
    """

    __slots__ = ("_automaton", "_held", "_includes_stop", "_node", "is_on", "stop", "unsent")

    def __init__(self, stops: Sequence[str], *, includes_stop: bool = False) -> None:
        marks = tuple(filter(None, stops))
        self._includes_stop = includes_stop
        self._automaton = automaton(marks) if marks else None
        self._node = ROOT
        self._held = ""
        self.stop: str | None = None
        self.is_on = True
        self.unsent = 0

    def push(self, text: str) -> str:
        """Text that is safe to send. Nothing comes after `stop`."""
        if self._automaton is None or not self.is_on:
            return text
        passed = "" if self.stop is not None else self._read(text, self._automaton)
        self.unsent += len(text) - len(passed)
        return passed

    def flush(self) -> str:
        """What was held back, when the text ends without a stop string."""
        held, self._held = self._held, ""
        return held

    def _read(self, text: str, automaton: Automaton) -> str:
        self._node, length = automaton.read(self._node, text)
        buffer = self._held + text[:length]
        if length := automaton.complete[self._node]:
            self.stop = buffer[-length:]
            self._held = ""
            return buffer if self._includes_stop else buffer[:-length]
        safe = len(buffer) - automaton.depth[self._node]
        self._held = buffer[safe:]
        return buffer[:safe]
