"""Reads what a .safetensors file says of its tensors, without the weights' bytes.

Format: 8 bytes little-endian length, that many bytes of JSON, then the tensors
(huggingface/safetensors, README).
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_engines.errors import BuildError

LENGTH = struct.Struct("<Q")
LARGEST_HEADER = 100_000_000  # bytes; safetensors' own limit
BYTES = {
    **{"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "U8": 1, "I8": 1, "BOOL": 1},
    **{"F64": 8, "I64": 8, "I32": 4, "I16": 2, "U64": 8, "U32": 4, "U16": 2, "F8_E8M0": 1},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """begin, end: bytes in the file."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> bytes:
        with self.file.open("rb") as opened:
            opened.seek(self.begin)
            return opened.read(self.end - self.begin)


def tensors(folder: Path) -> dict[str, Tensor]:
    """Name -> tensor, for all .safetensors files of a folder.

    Raises:
        BuildError: a file is cut off, or is no safetensors file.
    """
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= _in_file(file)
    return found


def _in_file(file: Path) -> dict[str, Tensor]:
    size = file.stat().st_size
    header, start = _header(file, size)
    found = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        try:
            begin, end = about["data_offsets"]
            shape = tuple(int(length) for length in about["shape"])
            expected = BYTES.get(about["dtype"], 0) * math.prod(shape)
        except (KeyError, TypeError, ValueError) as error:
            raise BuildError(f"{file}: the header says nothing usable of {name}") from error
        if start + end > size:
            raise BuildError(f"{file} is cut off: {size} bytes, {name} ends at {start + end}")
        if about["dtype"] in BYTES and end - begin != expected:
            raise BuildError(f"{file}: {name} has {end - begin} bytes, not {expected}")
        found[name] = Tensor(
            name=name,
            file=file,
            dtype=about["dtype"],
            shape=shape,
            begin=start + begin,
            end=start + end,
        )
    return found


def _header(file: Path, size: int) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors begin."""
    with file.open("rb") as opened:
        first = opened.read(LENGTH.size)
        length = LENGTH.unpack(first)[0] if len(first) == LENGTH.size else size
        if length + LENGTH.size > size or length > LARGEST_HEADER:
            raise BuildError(f"{file} is cut off, or is no safetensors file")
        try:
            parsed = json.loads(opened.read(length))
        except ValueError as error:
            raise BuildError(f"{file} is no safetensors file: {error}") from error
    return parsed, LENGTH.size + length
