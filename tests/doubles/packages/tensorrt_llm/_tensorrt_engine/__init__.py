from __future__ import annotations

from ..llmapi.llm import LLM

__all__ = ["LLM"]
