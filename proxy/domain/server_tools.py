"""Tools that the proxy runs itself: what they are, how a call of one went, and who runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol

from proxy.domain.tools import Tool


class CallStatus(str, Enum):
    """How a call went. The model gets all but OK in words, as the tool's result."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    REFUSED_ADDRESS = "refused_address"
    INVALID_ARGUMENTS = "invalid_arguments"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A tool with an HTTP endpoint. `parameters`: a JSON Schema of an object.

    headers: values may name secrets as ${NAME}; the secrets themselves are with the runner.
    """

    name: str
    url: str
    method: Literal["GET", "POST"] = "POST"
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    timeout_s: float = 10.0
    max_response_bytes: int = 65_536
    allow_private_addresses: bool = False

    @property
    def offered(self) -> Tool:
        """As the model sees it."""
        return Tool(
            name=self.name,
            description=self.description,
            parameters=self.parameters or None,
            runs_here=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTools:
    """A model's. `max_rounds`: answers whose calls are run, `max_seconds`: of running them; both
    for one choice.
    """

    tools: tuple[ServerTool, ...] = ()
    max_rounds: int = 5
    max_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """`text` is for the model. `response_bytes`: the size of the endpoint's response."""

    status: CallStatus
    text: str
    response_bytes: int = 0


class ToolRunner(Protocol):
    """One verb; cancelling it ends the call."""

    async def run(
        self, tool: ServerTool, arguments: Mapping[str, Any], *, timeout_s: float
    ) -> ToolResult:
        """Never raises for what the tool or the network does: that is a result, too."""
        ...
