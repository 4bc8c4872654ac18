from __future__ import annotations

from .executor import GenerationExecutor

__all__ = ["GenerationExecutor"]
