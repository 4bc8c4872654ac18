"""Large bodies that were parsed lately. The next turn of a conversation has the bytes of one, but
for the last items of one list: only these are parsed; rules between items are checked for all.

Called by `body_reader`. Knows the lists of bodies by their names alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

TOOLS = "tools"
LISTS = ("messages", "input", TOOLS)
MOST_BODIES = 64
MOST_BYTES = 48_000_000
BYTES_AN_OBJECT = 1_500  # of a parsed one, at most
TIMES_KEPT = 3  # a body's text: as bytes, and in strings of up to two bytes a letter, usually
SPACE = " \t\n\r"
_space = re.compile(f"[{SPACE}]*")
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPlace:
    """Where a list of objects stands in a body, in bytes. start: behind its `[`. ends: of each
    item. close: its `]`.
    """

    name: str
    start: int
    ends: list[int]
    close: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownItems:
    """The context of the validation of a body without its known items; see RequestBody.

    lists: those that stand before the new items, by the name of the list.
    """

    kind: type[BaseModel]
    lists: Mapping[str, list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBody:
    """owner: the tenant. name: of the list that grows, whose items are `items` and, with what
    stands before each of them, `texts`. head, tail: what stands around it; the bare ones are
    without the items of the other lists, which are `others`.
    """

    owner: tuple[str, str]
    kind: type[BaseModel]
    name: str
    head: bytes
    texts: list[bytes]
    tail: bytes
    bare_head: bytes
    bare_tail: bytes
    items: list[Any]
    others: Mapping[str, list[Any]]
    size: int

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What is new in a body. data: the body without its known items."""

    known: KnownBody
    count: int
    texts: list[bytes]
    data: bytes

    @property
    def items(self) -> KnownItems:
        known = self.known
        lists = {**known.others, known.name: known.items[: self.count]}
        return KnownItems(kind=known.kind, lists=lists)


class KnownBodies:
    """Of all tenants, within bounds; the ones used last stay."""

    def __init__(self) -> None:
        self._bodies: list[KnownBody] = []  # the one used last at the end

    @property
    def size(self) -> int:
        return sum(one.size for one in self._bodies)

    def rest(self, data: bytes, kind: type[BaseModel], owner: tuple[str, str]) -> Rest | None:
        """None if no body of this owner is like it, or what is new is no list of objects."""
        alike = [one for one in self._bodies if one.owner == owner and one.kind is kind]
        counts = [(one.common(data), at) for at, one in enumerate(alike)]
        count, at = max(counts, default=(0, 0))
        if not count:
            return None
        known = alike[at]
        start = len(known.head) + sum(map(len, known.texts[:count]))
        new = data[start : len(data) - len(known.tail)]
        texts = _new_items(new)
        if texts is None:
            return None
        bare = known.bare_head + new.lstrip(SPACE.encode())[1:] + known.bare_tail
        return Rest(known=known, count=count, texts=texts, data=bare)

    def keep_longer(self, rest: Rest, body: BaseModel) -> None:
        """The body that `rest` was of."""
        known = rest.known
        if rest.count == len(known.texts):
            self._bodies.remove(known)
        texts = known.texts[: rest.count] + rest.texts
        items = getattr(body, known.name)
        self._keep(replace(known, texts=texts, items=items, size=known.size + _size(rest.data)))

    def keep(
        self, data: bytes, body: BaseModel, owner: tuple[str, str], places: Sequence[ListPlace]
    ) -> None:
        """places: of its lists. A body that has none but tools is not kept."""
        grown = next((place for place in places if place.name != TOOLS), None)
        if grown is None:
            return
        ends = [grown.start, *grown.ends]
        cut = [place for place in places if place is not grown]
        self._keep(
            KnownBody(
                owner=owner,
                kind=type(body),
                name=grown.name,
                head=data[: grown.start],
                texts=[data[start:end] for start, end in pairwise(ends)],
                tail=data[ends[-1] :],
                bare_head=_without(data, 0, grown.start, cut),
                bare_tail=_without(data, ends[-1], len(data), cut),
                items=getattr(body, grown.name),
                others={place.name: getattr(body, place.name) for place in cut},
                size=_size(data),
            )
        )

    def _keep(self, body: KnownBody) -> None:
        self._bodies.append(body)
        while len(self._bodies) > MOST_BODIES or self.size > MOST_BYTES:
            self._bodies.pop(0)


def _size(data: bytes) -> int:
    return TIMES_KEPT * len(data) + BYTES_AN_OBJECT * data.count(b"{")


def _without(data: bytes, start: int, end: int, places: Sequence[ListPlace]) -> bytes:
    """data[start:end] without the items of the lists that stand in it."""
    kept = bytearray()
    for place in places:
        if start <= place.start < end:
            kept += data[start : place.start]
            start = place.close
    return bytes(kept + data[start:end])


def list_places(data: bytes) -> list[ListPlace]:
    """The lists of objects with names of LISTS that a JSON object has, in their order; none if it
    has two members of one of these names. `data` is valid JSON.
    """
    text, found, names = data.decode(), list[ListPlace](), list[str]()
    at = _behind_space(text, 0)
    while text[at] in "{,":
        name, at = _decode(text, _behind_space(text, at + 1))
        at = _behind_space(text, _behind_space(text, at) + 1)  # behind the colon
        end = 0
        if name in LISTS:
            names.append(name)
            ends = [*_item_ends(text, at + 1)] if text[at] == "[" else []
            close = _behind_space(text, ends[-1]) if ends else at
            if text[close] == "]":
                found.append(ListPlace(name=name, start=at + 1, ends=ends, close=close))
                end = close + 1
        at = _behind_space(text, end or _decode(text, at)[1])
    if len(set(names)) < len(names):
        return []
    return found if data.isascii() else _in_bytes(text, found)


def _in_bytes(text: str, places: Sequence[ListPlace]) -> list[ListPlace]:
    found, at, count = list[ListPlace](), 0, 0

    def to(place: int) -> int:
        nonlocal at, count
        count += len(text[at:place].encode())
        at = place
        return count

    for place in places:
        start, ends = to(place.start), [*map(to, place.ends)]
        found.append(ListPlace(name=place.name, start=start, ends=ends, close=to(place.close)))
    return found


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
