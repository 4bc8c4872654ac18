"""Objects in a folder and in a store by URL: the same, and made only once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.domain.errors import StoreUnavailable
from proxy.state import objects
from proxy.state.objects import UNFINISHED, FolderObjects, Objects
from proxy.state.remote_objects import RemoteObjects

KINDS: dict[str, Callable[[Path], Objects]] = {
    "folder": lambda folder: FolderObjects(folder / "made later"),
    "file": lambda folder: RemoteObjects(f"file://{folder}"),
    "memory": lambda folder: RemoteObjects("memory:///"),
}


@pytest.fixture(params=KINDS)
def store(request, tmp_path) -> Objects:
    return KINDS[request.param](tmp_path)


async def pieces(*given: bytes | Exception):
    for each in given:
        if isinstance(each, Exception):
            raise each
        yield each


def test_what_is_written_is_read(store):
    async def run() -> None:
        assert await store.read("a/b") is None
        assert await store.below("a") == await store.folders("a") == []
        assert await store.create("a/b", b"12345")
        assert not await store.create("a/b", b"other")
        for start, end, found in ((0, None, b"12345"), (1, 3, b"23"), (4, 99, b"5"), (5, 9, b"")):
            assert await store.read("a/b", start, end) == found
        await store.write("a/c/d", pieces(b"x" * 70_000, b"y" * 70_000))
        await store.write("a/c/d", pieces(b"x" * 70_000, b"z" * 70_000))
        read = b"".join([piece async for piece in store.pieces("a/c/d")])
        assert read == b"x" * 70_000 + b"z" * 70_000
        assert await store.below("a") == [("b", 5), ("c/d", 140_000)]
        assert await store.folders("a") == ["c"]
        assert await store.copy("a/b", "e/f")
        assert not await store.copy("a/none", "e/g")
        await store.delete(["a/b", "a/none"])
        assert await store.read("e/f") == b"12345"
        assert await store.below("e") == [("f", 5)]
        assert await store.below("a") == [("c/d", 140_000)]

    asyncio.run(run())


def test_one_of_many_creates_it(store):
    async def run() -> None:
        made = await asyncio.gather(*(store.create("a/b", b"%d" % n) for n in range(20)))
        assert sum(made) == 1
        assert await store.read("a/b") == b"%d" % made.index(True)

    asyncio.run(run())


def test_a_write_that_fails_leaves_what_was_there(store):
    async def run() -> None:
        await store.write("a", pieces(b"old"))
        with pytest.raises(ValueError, match="no"):
            await store.write("a", pieces(b"new", ValueError("no")))
        assert await store.read("a") == b"old"
        with pytest.raises(StoreUnavailable):
            [piece async for piece in store.pieces("none")]

    asyncio.run(run())


def test_files_of_a_folder_are_made_while_it_empties(tmp_path):
    async def run() -> None:
        store = FolderObjects(tmp_path)

        async def both(number: int) -> None:
            assert await store.create(f"a/b/{number}", b"")
            await store.delete([f"a/b/{number}"])

        await asyncio.gather(*map(both, range(200)))
        assert await store.below("a") == []

    asyncio.run(run())


def test_many_may_delete_one_object(tmp_path):
    async def run() -> None:
        store = FolderObjects(tmp_path)
        for number in range(100):
            path = f"{number}/a/b/c/d"
            await store.create(path, b"")
            await asyncio.gather(*(store.delete([path]) for _ in range(8)))
        assert await store.below("") == []

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        asyncio.run(run())
    finally:
        sys.setswitchinterval(usual)


def test_what_a_killed_process_has_left_is_removed_after_a_day(tmp_path, monkeypatch):
    left = tmp_path / UNFINISHED / "left"
    left.parent.mkdir()
    left.write_bytes(b"x")
    asyncio.run(FolderObjects(tmp_path).create("a", b""))
    assert left.exists()
    monkeypatch.setattr(objects, "LEFT_S", -1)
    asyncio.run(FolderObjects(tmp_path).create("b", b""))
    assert not left.exists()


def test_a_disk_that_fails_is_said_to_be_away(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        asyncio.run(FolderObjects(tmp_path / "file" / "below").create("a", b""))
    with pytest.raises(ValueError, match="nonsense"):
        RemoteObjects("nonsense://bucket")
