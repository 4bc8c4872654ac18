"""Aho-Corasick over a caller's stop strings: memory linear in them, constant work per character.

Equal marks share one automaton, since all choices of a request search for the same ones. Called by
`stop_matcher`.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache

ROOT = 0
_CODE_POINTS = 21  # bits


class Automaton:
    """Nodes are numbers; at ROOT the end of the text begins no mark.

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
