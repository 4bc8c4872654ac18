"""OpenTelemetry's standard environment variables -> what this proxy does. Called by
`app`.

The exporter and its queue read the others by themselves: OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT,
_COMPRESSION, _CERTIFICATE, OTEL_BSP_…, OTEL_RESOURCE_ATTRIBUTES.
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "OTEL_"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
EXPORTERS = ("otlp", "none")
PROPAGATORS = frozenset({"tracecontext", "baggage", "none"})
PARENT_BASED = "parentbased_"
RATIOS = {"always_on": 1.0, "always_off": 0.0, "traceidratio": None}
SERVICE_NAME = "triton-openai-proxy"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENTS = {"false": False, "NO_CONTENT": False, "true": True, "SPAN_ONLY": True}
TRACES_PATH = "/v1/traces"


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
        given = {
            name: value.strip()
            for name, value in variables.items()
            if name.startswith(PREFIX) and value.strip()
        }
        endpoint = _endpoint(given)
        is_off = given.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if endpoint is None or is_off or _exporter(given) == "none":
            return None
        _check_protocol(given)
        sampler = given.get("OTEL_TRACES_SAMPLER", f"{PARENT_BASED}always_on")
        return cls(
            endpoint=endpoint,
            service=given.get("OTEL_SERVICE_NAME", SERVICE_NAME),
            ratio=_ratio(sampler, given),
            follows_callers=sampler.startswith(PARENT_BASED),
            propagates="tracecontext" in _propagators(given),
            has_content=CONTENTS[_one_of(CONTENT, given.get(CONTENT, "false"), (*CONTENTS,))],
        )


def _endpoint(given: Mapping[str, str]) -> str | None:
    """Of traces: the first is taken as it is, to the other one the path is added."""
    if (own := given.get(ENDPOINTS[0])) is not None:
        return own
    whole = given.get(ENDPOINTS[1])
    return None if whole is None else whole.rstrip("/") + TRACES_PATH


def _exporter(given: Mapping[str, str]) -> str:
    return _one_of("OTEL_TRACES_EXPORTER", given.get("OTEL_TRACES_EXPORTER", "otlp"), EXPORTERS)


def _check_protocol(given: Mapping[str, str]) -> None:
    name = next((name for name in PROTOCOLS if name in given), None)
    if name is not None:
        _one_of(name, given[name], (PROTOCOL,))


def _ratio(sampler: str, given: Mapping[str, str]) -> float:
    kind = _one_of(
        "OTEL_TRACES_SAMPLER",
        sampler,
        (*RATIOS, *(f"{PARENT_BASED}{name}" for name in RATIOS)),
    ).removeprefix(PARENT_BASED)
    fixed = RATIOS[kind]
    if fixed is not None:
        return fixed
    text = given.get("OTEL_TRACES_SAMPLER_ARG", "1.0")
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise WrongTraceVariable(
            f"OTEL_TRACES_SAMPLER_ARG={text} must be a number from 0 to 1, the share of requests"
        )
    return ratio


def _propagators(given: Mapping[str, str]) -> frozenset[str]:
    """baggage is valid and has no effect: nothing here reads or writes it."""
    words = given.get("OTEL_PROPAGATORS", "tracecontext,baggage").split(",")
    found = frozenset(word.strip() for word in words)
    for word in sorted(found):
        _one_of("OTEL_PROPAGATORS", word, tuple(sorted(PROPAGATORS)))
    return found


def _one_of(name: str, value: str, supported: tuple[str, ...]) -> str:
    if value not in supported:
        raise WrongTraceVariable(
            f"{name}={value} is not supported here: use {' or '.join(supported)}"
        )
    return value
