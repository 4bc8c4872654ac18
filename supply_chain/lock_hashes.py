"""Writes the SHA-256 of every file that a lock may install into the lock: `make lock-hashes`.

The files are those that pip's index has for each pinned version: wheels for Python 3.10 to 3.12 on
glibc Linux, x86-64 and aarch64, and the source distribution where a package has no such wheel. pip
verifies the hash of each file that it installs from a lock with hashes.

It uses pip's internal reader of indexes, so it runs by hand and in no installation.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pip._internal.commands import create_command
from pip._internal.index.collector import LinkCollector, parse_links
from pip._internal.models.link import Link

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted(
    path for folder in ("", "build_engines") for path in (ROOT / folder).glob("requirements*.lock")
)
PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)")
PYTHON = re.compile(r"(cp|py)3(10|11|12)?|cp3[2-9]|cp3(10|11|12)")
PLATFORM = re.compile(r"any|(manylinux\w*|linux)_(x86_64|aarch64)")
SOURCES = (".tar.gz", ".zip")


class NoHash(Exception):
    """The index has no file, or no SHA-256, for a pin."""


def without_hashes(lock: str) -> list[str]:
    """The lines of the lock, each pin on one."""
    joined = re.sub(r"\s*\\\n\s+--hash=\S+", "", lock)
    return joined.splitlines()


def with_hashes(line: str, hashes: Iterable[str]) -> str:
    """A line of the lock with its hashes, sorted, so that files that are added make small diffs."""
    return " \\\n".join([line, *(f"    --hash=sha256:{digest}" for digest in sorted(hashes))])


def is_usable(filename: str) -> bool:
    """Whether a wheel fits one of the Pythons and platforms."""
    try:
        _, _, _, tags = parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return False
    return any(_fits(tag.interpreter, tag.abi, tag.platform) for tag in tags)


def _fits(interpreter: str, abi: str, platform: str) -> bool:
    is_old = re.fullmatch(r"cp3[2-9]", interpreter) is not None
    return (
        PYTHON.fullmatch(interpreter) is not None
        and PLATFORM.fullmatch(platform) is not None
        and (not is_old or abi == "abi3")
        and not abi.endswith("t")  # free-threaded
    )


def chosen(name: str, version: str, links: Iterable[Link]) -> set[str]:
    """The hashes for one pin.

    Raises:
        NoHash: no file fits, or one has no SHA-256.
    """
    wheels, sources = [], []
    for link in links:
        if link.filename.endswith(".whl"):
            if is_usable(link.filename) and parse_wheel_filename(link.filename)[1] == Version(
                version
            ):
                wheels.append(link)
        elif _is_source(link.filename, name, version):
            sources.append(link)
    files = wheels or sources
    digests = {_sha256(link) for link in files}
    if not digests:
        raise NoHash(f"{name}=={version}: the index has no file for it")
    return digests


def _is_source(filename: str, name: str, version: str) -> bool:
    for end in SOURCES:
        stem, _, found = filename.removesuffix(end).rpartition("-")
        if filename.endswith(end) and canonicalize_name(stem) == canonicalize_name(name):
            return found == version
    return False


def _sha256(link: Link) -> str:
    if link.hash_name != "sha256" or link.hash is None:
        raise NoHash(f"{link.filename}: the index gives no SHA-256")
    return link.hash


class Index:
    """The package index that pip is configured for."""

    def __init__(self) -> None:
        command = create_command("download")
        options, _ = command.parse_args([])
        session = command._build_session(options)  # type: ignore[attr-defined]
        self._collector = LinkCollector.create(session, options)

    def links(self, name: str) -> Iterator[Link]:
        for url in self._collector.search_scope.get_index_urls_locations(name):
            if url.startswith("https://"):
                page = self._collector.fetch_response(Link(url))
                yield from parse_links(page) if page is not None else ()


def hashed(lock: str, links: Callable[[str], Iterable[Link]]) -> str:
    """The lock with the hashes that the index has now.

    Raises:
        NoHash: the index has no file, or no SHA-256, for a pin.
    """
    lines = []
    for line in without_hashes(lock):
        if (pin := PIN.match(line)) is not None:
            line = with_hashes(line, chosen(pin["name"], pin["version"], links(pin["name"])))
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    index = Index()
    try:
        for lock in LOCKS:
            lock.write_text(hashed(lock.read_text(), index.links))
    except NoHash as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
