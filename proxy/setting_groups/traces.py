"""Which traces are kept. OpenTelemetry's own variables (OTEL_…) configure the rest."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.setting_groups.group import Group


class Traces(Group):
    """Traces"""

    trace_slow_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0
    """A request that takes longer than this is kept even if it is not sampled; one that failed
    always is."""
