"""A hash of a folder's contents that is quick even for weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

HASHED_WHOLE_BYTES = 64_000_000


def of(folder: Path) -> str:
    """Hashes names, sizes and contents; for files over 64 MB, the modification time instead."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        stat = path.stat()
        digest.update(f"{path.relative_to(folder)} {stat.st_size}\n".encode())
        if stat.st_size <= HASHED_WHOLE_BYTES:
            digest.update(path.read_bytes())
        else:
            digest.update(str(stat.st_mtime_ns).encode())
    return digest.hexdigest()
