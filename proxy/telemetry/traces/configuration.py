"""OpenTelemetry's standard environment variables -> what this proxy does. Called by `app`.

The exporter and its queue read the others by themselves: OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT,
_COMPRESSION, _CERTIFICATE, OTEL_BSP_…, OTEL_RESOURCE_ATTRIBUTES.
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PARENT_BASED = "parentbased_"
RATIOS = {"always_on": 1.0, "always_off": 0.0, "traceidratio": None}
SAMPLERS = (*RATIOS, *(f"{PARENT_BASED}{name}" for name in RATIOS))
SERVICE_NAME = "triton-openai-proxy"
CONTENTS = {"false": False, "NO_CONTENT": False, "true": True, "SPAN_ONLY": True}


class WrongTraceVariable(Exception):
    """A variable has a value that this proxy does not support. The message names both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceConfiguration:
    """ratio: the share of requests whose traces are sampled. follows_callers: a caller's sampled
    flag decides before the ratio. propagates: the caller's trace context is read, and passed on.
    has_content: spans have prompts and answers.
    """

    endpoint: str
    service: str
    ratio: float
    follows_callers: bool
    propagates: bool
    has_content: bool = False

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> TraceConfiguration | None:
        """None: traces are off, because no endpoint is named, or by request.

        Raises:
            WrongTraceVariable.
        """
        given = {name: value.strip() for name, value in variables.items() if value.strip()}

        def one_of(name: str, default: str, supported: Iterable[str]) -> str:
            return _supported(name, given.get(name, default), supported)

        endpoint = given.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        if endpoint is None and ENDPOINT in given:
            endpoint = given[ENDPOINT].rstrip("/") + "/v1/traces"
        is_off = given.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if (
            endpoint is None
            or is_off
            or one_of("OTEL_TRACES_EXPORTER", "otlp", ("otlp", "none")) == "none"
        ):
            return None
        protocol = PROTOCOLS[0] if PROTOCOLS[0] in given else PROTOCOLS[1]
        one_of(protocol, "http/protobuf", ("http/protobuf",))
        sampler = one_of("OTEL_TRACES_SAMPLER", f"{PARENT_BASED}always_on", SAMPLERS)
        fixed = RATIOS[sampler.removeprefix(PARENT_BASED)]
        propagators = given.get("OTEL_PROPAGATORS", "tracecontext,baggage").split(",")
        # baggage is valid and has no effect: nothing here reads or writes it
        found = {
            _supported("OTEL_PROPAGATORS", each.strip(), ("baggage", "none", "tracecontext"))
            for each in propagators
        }
        content = one_of("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "false", CONTENTS)
        return cls(
            endpoint=endpoint,
            service=given.get("OTEL_SERVICE_NAME", SERVICE_NAME),
            ratio=_ratio(given.get("OTEL_TRACES_SAMPLER_ARG", "1.0")) if fixed is None else fixed,
            follows_callers=sampler.startswith(PARENT_BASED),
            propagates="tracecontext" in found,
            has_content=CONTENTS[content],
        )


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise WrongTraceVariable(
            f"OTEL_TRACES_SAMPLER_ARG={text} must be a number from 0 to 1, the share of requests"
        )
    return ratio


def _supported(name: str, value: str, supported: Iterable[str]) -> str:
    if value not in supported:
        raise WrongTraceVariable(
            f"{name}={value} is not supported here: use {' or '.join(supported)}"
        )
    return value
