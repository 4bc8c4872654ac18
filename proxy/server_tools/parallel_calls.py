"""Runs the calls of one tool round in parallel, and logs a line for each. Used by `tool_loop`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from proxy.domain.record import StageName, stage
from proxy.domain.server_tools import CallStatus, ServerTool, ToolResult, ToolRunner
from proxy.domain.tools import ToolCall
from proxy.server_tools.arguments import InvalidArguments, parse_arguments

AT_ONCE = 8
NOT_RUN = ToolResult(status=CallStatus.NOT_RUN, text="")

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCall:
    """A call with its result."""

    call: ToolCall
    result: ToolResult = NOT_RUN
    duration_ms: float = 0.0


class ParallelCalls:
    """Runs the calls of one choice. All its rounds together may take `seconds`."""

    def __init__(
        self, tools: Sequence[ServerTool], runner: ToolRunner, *, request_id: str, seconds: float
    ) -> None:
        self._tools: Mapping[str, ServerTool] = {tool.name: tool for tool in tools}
        self._runner = runner
        self._request_id = request_id
        self._seconds_left = seconds

    @property
    def has_time(self) -> bool:
        return self._seconds_left > 0

    async def run(self, calls: Sequence[ToolCall]) -> list[FinishedCall]:
        """Runs the calls, up to AT_ONCE at a time, and returns them in the same order.

        Cancelling it cancels the calls.
        """
        began, slots = time.monotonic(), asyncio.Semaphore(AT_ONCE)
        deadline = began + self._seconds_left

        async def in_turn(call: ToolCall) -> FinishedCall:
            async with slots:
                return await self._one(call, deadline)

        try:
            return await asyncio.gather(*map(in_turn, calls))
        finally:
            self._seconds_left -= time.monotonic() - began

    async def _one(self, call: ToolCall, deadline: float) -> FinishedCall:
        began = time.monotonic()
        with stage(StageName.TOOL) as running:
            running.attributes["tool"] = call.name
            result = await self._result(self._tools[call.name], call, max(deadline - began, 0))
        duration_ms = round((time.monotonic() - began) * 1000, 1)
        logger.info(
            "server_tool",
            id=self._request_id,
            tool=call.name,
            status=result.status.value,
            argument_chars=len(call.arguments),
            response_bytes=result.response_bytes,
            duration_ms=duration_ms,
        )
        return FinishedCall(call=call, result=result, duration_ms=duration_ms)

    async def _result(self, tool: ServerTool, call: ToolCall, seconds_left: float) -> ToolResult:
        try:
            arguments = parse_arguments(tool, call.arguments)
        except InvalidArguments as error:
            return ToolResult(status=CallStatus.INVALID_ARGUMENTS, text=str(error))
        timeout_s = min(tool.timeout_s, seconds_left)
        return await self._runner.run(tool, arguments, timeout_s=timeout_s)
