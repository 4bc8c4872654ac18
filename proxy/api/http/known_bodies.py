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

GROWING, TOOLS = ("messages", "input"), "tools"
MOST_BODIES = 64
MOST_BYTES = 48_000_000
BYTES_AN_OBJECT = 1_500  # of a parsed one, at most
TIMES_KEPT = 3  # a body's text: as bytes, and in strings of up to two bytes a letter, usually
SPACE = " \t\n\r"
_space = re.compile(f"[{SPACE}]*")
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownItems:
    """Items that were left out of a body, and come first in their lists: the context of its
    validation, see RequestBody. kind: the body's.
    """

    kind: type[BaseModel]
    lists: Mapping[str, list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBody:
    """A body's JSON: head, then each item of the list `name` with what stands before it, then tail.
    bare_head, bare_tail: the same without the tools.
    """

    name: str
    head: bytes
    texts: list[bytes]
    tail: bytes
    bare_head: bytes
    bare_tail: bytes

    def common(self, data: bytes) -> int:
        """How many items `data` begins with, if it differs in its items alone; else 0."""
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
    owner: tuple[str, str]  # the tenant
    body: BaseModel
    cut: CutBody
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What a body has besides the first items of a known one.

    data: its JSON without them. cut: all of it. replaces: the known body, if it has no other items.
    """

    data: bytes
    items: KnownItems
    cut: CutBody
    replaces: KnownBody | None


class KnownBodies:
    """Of all tenants, within bounds; the newest ones stay."""

    def __init__(self) -> None:
        self._bodies: list[KnownBody] = []  # the newest last

    @property
    def size(self) -> int:
        return sum(one.size for one in self._bodies)

    def rest(self, data: bytes, kind: type[BaseModel], owner: tuple[str, str]) -> Rest | None:
        """None if no body of this owner is like it, or what is new is no list of objects."""
        alike = [one for one in self._bodies if one.owner == owner and type(one.body) is kind]
        count, at = max(
            ((one.cut.common(data), at) for at, one in enumerate(alike)), default=(0, 0)
        )
        if not count:
            return None
        known, cut = alike[at], alike[at].cut
        texts = cut.texts[:count]
        new = data[len(cut.head) + sum(map(len, texts)) : len(data) - len(cut.tail)]
        if (added := _new_items(new)) is None:
            return None
        lists = {cut.name: getattr(known.body, cut.name)[:count]}
        if (cut.bare_head, cut.bare_tail) != (cut.head, cut.tail):
            lists[TOOLS] = getattr(known.body, TOOLS)
        return Rest(
            data=cut.bare_head + new.lstrip(SPACE.encode())[1:] + cut.bare_tail,
            items=KnownItems(kind=kind, lists=lists),
            cut=replace(cut, texts=texts + added),
            replaces=known if count == len(cut.texts) else None,
        )

    def keep(
        self,
        data: bytes,
        body: BaseModel,
        owner: tuple[str, str],
        cut: CutBody,
        replaces: KnownBody | None = None,
    ) -> None:
        size = TIMES_KEPT * len(data) + BYTES_AN_OBJECT * data.count(b"{")
        kept = [one for one in self._bodies if one is not replaces]
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
    grown = next((places[name] for name in GROWING if len(places.get(name, ())) > 1), None)
    if grown is None or len(set(names)) < len(names):
        return None
    head, tail = text[: grown[0]], text[grown[-1] :]
    bare_head, bare_tail = head, tail
    if tools := places.get(TOOLS):
        if tools[0] < grown[0]:
            bare_head = text[: tools[0]] + text[tools[-1] : grown[0]]
        else:
            bare_tail = text[grown[-1] : tools[0]] + text[tools[-1] :]
    return CutBody(
        name=next(name for name in GROWING if places.get(name) is grown),
        head=head.encode(),
        texts=[text[start:end].encode() for start, end in pairwise(grown)],
        tail=tail.encode(),
        bare_head=bare_head.encode(),
        bare_tail=bare_tail.encode(),
    )


def _item_ends(text: str, at: int) -> Iterator[int]:
    """The end of each of the objects that follow, with or without commas before them."""
    while True:
        at = _behind_space(text, at)
        if text.startswith(",", at):
            at = _behind_space(text, at + 1)
        if not text.startswith("{", at):
            return
        at = _decode(text, at)[1]
        yield at


def _new_items(new: bytes) -> list[bytes] | None:
    """Each item, with the comma before it, of what follows an item in a list; None for a text that
    ends in another place.
    """
    try:
        text = new.decode()
        ends = [0, *_item_ends(text, 0)]
    except (ValueError, RecursionError):
        return None
    if text[ends[-1] :].strip(SPACE) or not (len(ends) == 1 or text.lstrip(SPACE).startswith(",")):
        return None
    return [text[start:end].encode() for start, end in pairwise(ends)]


def _behind_space(text: str, at: int) -> int:
    found = _space.match(text, at)
    assert found is not None  # it matches everywhere
    return found.end()
