"""Whether, and from where, a build may install packages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageIndex:
    """torch_index: another index for torch; pip's own configuration decides about the others."""

    may_install: bool = True
    torch_index: str | None = None


DEFAULT_INDEX = PackageIndex()
