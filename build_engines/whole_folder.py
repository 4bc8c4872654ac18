"""A folder that appears only when it is complete, and records what it was made of."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

KEY_FILE = "build.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What a folder is made of. `key`: a hash of its inputs. `tools`: package -> version.

    A tool that is not installed here has the version None: what it made elsewhere is still good.
    """

    key: str
    tools: Mapping[str, str | None] = field(default_factory=dict)

    def agrees_with(self, stored: object) -> bool:
        """Whether `stored`, the content of a key file, records the same provenance."""
        if not isinstance(stored, dict) or stored.get("key") != self.key:
            return False
        known = stored.get("tools", {})
        return all(known.get(name) == found for name, found in self.tools.items() if found)


def is_made(folder: Path, provenance: Provenance) -> bool:
    """Whether the folder is there, and has this provenance."""
    try:
        return provenance.agrees_with(json.loads((folder / KEY_FILE).read_text()))
    except (OSError, ValueError):
        return False


@contextmanager
def made(folder: Path, provenance: Provenance) -> Iterator[Path]:
    """Yields an empty folder to fill, which replaces the old one at the end."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    yield unfinished
    content = {"key": provenance.key, "tools": dict(provenance.tools)}
    (unfinished / KEY_FILE).write_text(json.dumps(content))
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


HASHED_WHOLE_BYTES = 64_000_000


def contents_hash(folder: Path) -> str:
    """Hashes names, sizes and contents; for files over 64 MB, the modification time instead.

    folder: or one file, whose name does not matter.
    """
    digest = hashlib.sha256()
    paths = [folder, *folder.rglob("*")]
    for path in sorted(p for p in paths if p.is_file()):
        stat = path.stat()
        digest.update(f"{path.relative_to(folder)} {stat.st_size}\n".encode())
        if stat.st_size <= HASHED_WHOLE_BYTES:
            digest.update(path.read_bytes())
        else:
            digest.update(str(stat.st_mtime_ns).encode())
    return digest.hexdigest()
