"""When streams begin, and what becomes of those that lose their engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from proxy.settings.group import Group, Seconds

Streams = Annotated[int, Field(ge=0, le=100_000)]
WaitSeconds = Annotated[float, Field(ge=0, le=3600)]


class Scheduling(Group):
    """The fair queue"""

    scheduling: Literal["fair", "none"] = "fair"
    """`fair`: streams wait in the proxy for a row of their model, and tenants take turns by the
    tokens they use. `none`: all of them go to the engine at once, and queue there. Choose `none`
    where Triton's own queue should decide."""
    queue_length: Streams | None = None
    """Streams of one model that may wait; one more gets 429 `queue_full`. Without it: 16 for each
    stream that the model can run. Lower it where callers would rather go elsewhere than wait."""
    queue_timeout_s: WaitSeconds = 120.0
    """How long a stream may wait for its first row; then 429 `queue_full`. A request may ask for
    less with `x-queue-timeout-ms`. Lower it where callers would rather fail early."""
    fair_preemption: bool = True
    """A tenant that runs less than its share of a model's rows takes one at once of a tenant that
    runs more, which stops its newest stream and continues it later. `false`: it waits for the next
    row that becomes free. Turn it off where a continued answer costs too much."""
    spare_streams: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Streams beyond its rows that an engine gets, so that no row is idle between two. Without it:
    from one for each eight rows up to one for each four, and two, as long as rows are found idle.
    Set 0 where a stream must not wait in the engine."""
    hold_timeout_s: WaitSeconds = 0.0
    """How long a request waits in the queue for a model that no endpoint serves now, such as one
    that was scaled to zero; then 429 `queue_full`. `REQUEST_TIMEOUT_S` counts this time, too. 0:
    503 at once. Set it to the longest start of a Triton where something starts one when
    requests wait."""
    held_requests: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Streams of one model that may wait so. In a full queue, a tenant with many gives a place to
    one with fewer. Raise it where many callers come before a Triton has started."""
    held_mb: Annotated[float, Field(gt=0, le=65_536)] = 64.0
    """Size of the prompts and images that may wait so for one model, as they are in memory; with
    the messages of chats and all that is being read, the proxy takes up to six times that. Raise
    it where prompts are long."""

    @model_validator(mode="after")
    def _held_requests_queue(self) -> Scheduling:
        if self.hold_timeout_s and self.scheduling == "none":
            raise ValueError(
                f"HOLD_TIMEOUT_S={self.hold_timeout_s:g} holds requests in the fair queue, which "
                "SCHEDULING=none turns off: remove one of them"
            )
        return self


class Continuation(Group):
    """Streams that lose their engine"""

    max_continuations: Annotated[int, Field(ge=0, le=1000)] = 64
    """How often the answer of one stream is continued by another engine stream, after its endpoint
    died, fell silent or was drained; 0: it ends with an error. Set 0 where an answer must come
    from one engine."""
    inexact_continuation: Literal["error", "continue"] = "error"
    """What becomes of an answer whose rest may differ from the one that would have come, because
    its engine cannot restore all of its state: an `error`, or `continue`. Choose `continue` where
    an answer that differs is better than none."""
    continue_after_silence_s: Seconds = 15.0
    """A stream that has begun, and gets nothing for so long, is continued at another endpoint, if
    one is ready. Otherwise `STALL_TIMEOUT_S` holds. Raise it for engines that pause longer."""
    continue_within_s: Seconds = 60.0
    """How long a stream that lost its engine after its first token waits for an endpoint that
    continues it; then it ends with an error. Raise it where a Triton takes longer to start
    again."""
