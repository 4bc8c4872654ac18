"""Settings and OpenTelemetry's variables -> what observes requests. Called by `app`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy.models.model_info import ModelInfo
from proxy.models.registry import Registry
from proxy.processes.errors import LaunchError
from proxy.settings import Settings
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.traces.configuration import (
    TraceConfiguration,
    WrongTraceVariable,
)

if TYPE_CHECKING:
    from proxy.telemetry.traces.tracing import Tracing


def trace_configuration(variables: Mapping[str, str]) -> TraceConfiguration | None:
    """None: no endpoint for traces is named.

    Raises:
        LaunchError: a variable has a value that is not supported.
    """
    try:
        return TraceConfiguration.read(variables)
    except WrongTraceVariable as error:
        raise LaunchError(str(error)) from None


def tracing(settings: Settings, variables: Mapping[str, str], metrics: Metrics) -> Tracing | None:
    """None: nothing is traced. Raises as `trace_configuration`."""
    configuration = trace_configuration(variables)
    if configuration is None:
        return None
    # takes a quarter of a second, which only those pay who want traces
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    from proxy.telemetry.traces.export import SpanExport
    from proxy.telemetry.traces.tracing import Tracing

    return Tracing(
        configuration,
        lambda: SpanExport(configuration.endpoint, metrics.count_spans),
        Resource.create({SERVICE_NAME: configuration.service}),
        slow_s=settings.trace_slow_s,
    )


def exposition(metrics: Metrics, registry: Registry) -> Exposition:
    """What /metrics answers with."""
    return Exposition(metrics, ModelInfo(registry))
