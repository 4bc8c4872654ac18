"""A double of domain.server_tools' port."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from proxy.domain.server_tools import CallStatus, ServerTool, ToolResult


class ScriptedTools:
    """Answers each tool by its name, and keeps what it was asked. `takes_s` passes first."""

    def __init__(self, texts: Mapping[str, str] | None = None, *, takes_s: float = 0) -> None:
        self.texts = texts or {}
        self.takes_s = takes_s
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.cancelled = 0
        self.most_at_once = 0
        self.is_running = asyncio.Event()
        self._running = 0

    async def run(
        self, tool: ServerTool, arguments: Mapping[str, Any], *, timeout_s: float
    ) -> ToolResult:
        self.asked.append((tool.name, dict(arguments)))
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        self.is_running.set()
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self._running -= 1
        return ToolResult(status=CallStatus.OK, text=self.texts[tool.name])
