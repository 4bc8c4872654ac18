"""Streams that lose their engine after their first token."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from proxy.setting_groups.group import Group, Seconds


class Continuation(Group):
    """Streams that lose their engine"""

    max_continuations: Annotated[int, Field(ge=0, le=1000)] = 64
    """How often the answer of one stream is continued by another engine stream, after its endpoint
    died, fell silent or was drained; 0: it ends with an error. See docs/pools.md."""
    inexact_continuation: Literal["error", "continue"] = "error"
    """What becomes of an answer whose rest may differ from the one that would have come, because
    its engine cannot restore all of its state: an `error`, or `continue`."""
    continue_after_silence_s: Seconds = 15.0
    """A stream that has begun, and gets nothing for so long, is continued at another endpoint, if
    one is ready. Otherwise `STALL_TIMEOUT_S` holds."""
    continue_within_s: Seconds = 60.0
    """How long a stream that lost its engine after its first token waits for an endpoint that
    continues it; then it ends with an error."""
    drain_moves_streams: bool = True
    """Whether streams of an endpoint that drains are continued at another one at once. Otherwise,
    and where they cannot be continued exactly, they run to their end."""
