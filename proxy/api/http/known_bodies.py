"""Large bodies that were parsed lately. The next turn of a conversation has the bytes of one, but
for the last items of one list: only these are parsed; rules between items are checked for all.

Called by `body_reader`. Knows the lists of bodies by their names alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from proxy.api.http import json_shape

Owner = tuple[str, str]  # a tenant
GROWING, TOOLS = ("messages", "input"), "tools"
MOST_BODIES = 64
MOST_BYTES = 48_000_000
BYTES_AN_OBJECT = 1_500  # of a parsed one, at most
TIMES_KEPT = 3  # a body's text: as bytes, and in strings of up to two bytes a letter, usually
SPACE = " \t\n\r"
_space = re.compile(f"[{SPACE}]*")
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBody:
    """A body's JSON: head, then the items of the list `name` with what stands before them, then
    tail. texts: of one item, or of several that came together. counts: how many items each has.
    bare_head, bare_tail: without the tools.
    """

    name: str
    head: bytes
    texts: list[bytes]
    counts: list[int]
    tail: bytes
    bare_head: bytes
    bare_tail: bytes

    def common(self, data: bytes) -> int:
        """How many texts `data` begins with, if it differs in these alone; else 0."""
        if not (data.startswith(self.head) and data.endswith(self.tail)):
            return 0
        at, last = len(self.head), len(data) - len(self.tail)
        for count, text in enumerate(self.texts):
            if not data.startswith(text, at) or at + len(text) > last:
                return count
            at += len(text)
        return len(self.texts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownBody:
    owner: Owner
    body: BaseModel
    cut: CutBody
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What a body has besides the first items of a known one: the context of its validation.

    data: its JSON without these. lists: which were left out, and come first in their lists. cut:
    the whole body. replaces: the known body, if it has no other items.
    """

    kind: type[BaseModel]
    data: bytes
    lists: Mapping[str, list[Any]]
    cut: CutBody
    replaces: KnownBody | None


class KnownBodies:
    """The bodies of all tenants. When they are too many or too large, the oldest go first."""

    def __init__(self) -> None:
        self._bodies: list[KnownBody] = []  # the newest last

    @property
    def size(self) -> int:
        return sum(one.size for one in self._bodies)

    def rest(self, data: bytes, kind: type[BaseModel], owner: Owner) -> Rest | None:
        """None if no body of this owner is like it, or what is new is not cheap, or no objects."""
        alike = [one for one in self._bodies if one.owner == owner and type(one.body) is kind]
        found = [one.cut.common(data) for one in alike]
        if not (most := max(found, default=0)):
            return None
        known = alike[found.index(most)]
        cut, texts, counts = known.cut, known.cut.texts[:most], known.cut.counts[:most]
        new = data[len(cut.head) + sum(map(len, texts)) : len(data) - len(cut.tail)]
        bare = cut.bare_head + new.lstrip(SPACE.encode())[1:] + cut.bare_tail
        if not json_shape.is_cheap(bare):
            return None
        try:  # whole items, so that the tail stands where it stood
            added = json.loads(b"[{}%s]" % new)[1:]
        except (ValueError, RecursionError):
            return None
        if not all(isinstance(item, dict) for item in added):
            return None
        lists, more = {cut.name: getattr(known.body, cut.name)[: sum(counts)]}, [new] * bool(added)
        if (cut.bare_head, cut.bare_tail) != (cut.head, cut.tail):
            lists[TOOLS] = getattr(known.body, TOOLS)
        return Rest(
            kind=kind,
            data=bare,
            lists=lists,
            cut=replace(cut, texts=texts + more, counts=counts + [len(added)] * len(more)),
            replaces=known if most == len(cut.texts) else None,
        )

    def keep(
        self, data: bytes, body: BaseModel, owner: Owner, cut: CutBody, old: KnownBody | None = None
    ) -> None:
        """old: in whose place it comes."""
        size = TIMES_KEPT * len(data) + BYTES_AN_OBJECT * data.count(b"{")
        kept = [one for one in self._bodies if one is not old]
        self._bodies = [*kept, KnownBody(owner=owner, body=body, cut=cut, size=size)]
        while len(self._bodies) > MOST_BODIES or self.size > MOST_BYTES:
            self._bodies.pop(0)


def cut_body(data: bytes) -> CutBody | None:
    """The valid JSON of an object in pieces; None if it has no list of objects that grows, or two
    members of one name.
    """
    text, places, names = data.decode(), dict[str, list[int]](), list[str]()
    at = _behind_space(text, 0)
    while text[at] in "{,":
        name, at = _decode(text, _behind_space(text, at + 1))
        at = _behind_space(text, _behind_space(text, at) + 1)  # behind the colon
        names.append(name)
        if name in (*GROWING, TOOLS) and text[at] == "[":
            places[name] = [at + 1, *_item_ends(text, at + 1)]  # where each item begins, and ends
            close = _behind_space(text, places[name][-1])
        if name in places and text[close] == "]":
            at = close + 1
        else:
            places.pop(name, None)
            at = _decode(text, at)[1]
        at = _behind_space(text, at)
    name = next((name for name in GROWING if len(places.get(name, ())) > 1), None)
    if name is None or len(set(names)) < len(names):
        return None
    grown, tools = places[name], places.get(TOOLS, [0])
    first, last, start, end = grown[0], grown[-1], tools[0], tools[-1]
    bare_head = text[: min(start, first)] + text[min(end, first) : first]
    bare_tail = text[last : max(start, last)] + text[max(end, last) :]
    return CutBody(
        name=name,
        head=text[:first].encode(),
        texts=[text[start:end].encode() for start, end in pairwise(grown)],
        counts=[1] * (len(grown) - 1),
        tail=text[last:].encode(),
        bare_head=bare_head.encode(),
        bare_tail=bare_tail.encode(),
    )


def _item_ends(text: str, at: int) -> Iterator[int]:
    """The end of each object of a list that begins there."""
    while True:
        at = _behind_space(text, at)
        if text.startswith(",", at):
            at = _behind_space(text, at + 1)
        if not text.startswith("{", at):
            return
        at = _decode(text, at)[1]
        yield at


def _behind_space(text: str, at: int) -> int:
    return _space.match(text, at).end()  # type: ignore[union-attr]  # it matches everywhere
