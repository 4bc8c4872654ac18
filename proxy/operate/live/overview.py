"""What one frame of `top` shows: rows of models, endpoints and tenants, made from numbers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.domain.output import FinishReason
from proxy.operate.live.window import Groups, Page, Window, summed

REQUESTS, ACTIVE = "proxy_requests_total", "proxy_requests_active"
TOKENS_IN, TOKENS_OUT = "proxy_prompt_tokens_total", "proxy_completion_tokens_total"
TTFT, LAG = "proxy_time_to_first_token_seconds", "proxy_event_loop_lag_seconds"
ENDPOINT_TOKENS, WAITING = "proxy_endpoint_tokens_total", "proxy_fair_queue_waiting"
READY = "proxy_ready"
# Outcomes that are no failure: the answer ended, or its client disconnected.
ENDED = {*(reason.value for reason in FinishReason), "content_filter", "abandoned"}
Listing = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """Rates are in a second, ttft in seconds. None: unknown."""

    name: str
    requests: float
    failures: float
    running: float
    waiting: float | None
    ttft_p50: float | None
    ttft_p99: float | None
    tokens_in: float
    tokens_out: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRow:
    """running, waiting, kv_in_use (0 to 1): as its engines report them. None: unknown."""

    pool: str
    address: str
    state: str | None
    running: int | None
    waiting: int | None
    kv_in_use: float | None
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """Rates are in a second."""

    name: str
    requests: float
    tokens_in: float
    tokens_out: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """seconds: over which rates and quantiles are taken. lag_p99: of the event loop, in seconds."""

    seconds: float
    models: Sequence[ModelRow]
    endpoints: Sequence[EndpointRow]
    tenants: Sequence[TenantRow]
    lag_p99: float | None
    is_ready: bool


def overview(window: Window, listing: Listing | None) -> Overview:
    """listing: of /admin/v1/endpoints; None: it cannot be read."""
    ready = summed(window.page, READY)
    return Overview(
        seconds=window.seconds,
        models=_models(window),
        endpoints=_endpoints(window, listing),
        tenants=_tenants(window),
        lag_p99=window.quantiles(LAG, 0.99).get(()),
        is_ready=bool(ready.get((), 0.0)),
    )


def _models(window: Window) -> list[ModelRow]:
    running = summed(window.page, ACTIVE, "model")
    waiting = _waiting(window.page)
    outcomes = window.rates(REQUESTS, "model", "outcome")
    tokens_in, tokens_out = window.rates(TOKENS_IN, "model"), window.rates(TOKENS_OUT, "model")
    medians, slowest = (window.quantiles(TTFT, share, "model") for share in (0.5, 0.99))
    return [
        ModelRow(
            name=model[0],
            requests=sum(rate for group, rate in outcomes.items() if group[:1] == model),
            failures=sum(
                rate
                for (name, outcome), rate in outcomes.items()
                if (name,) == model and outcome not in ENDED
            ),
            running=running.get(model, 0.0),
            waiting=waiting.get(model),
            ttft_p50=medians.get(model),
            ttft_p99=slowest.get(model),
            tokens_in=tokens_in.get(model, 0.0),
            tokens_out=tokens_out.get(model, 0.0),
        )
        for model in sorted({group[:1] for group in outcomes} | running.keys())
    ]


def _waiting(page: Page) -> Groups:
    """By Triton's name of the model, which is most often the public one, too."""
    found: Groups = {}
    for (queue,), count in summed(page, WAITING, "queue").items():
        model = (queue.partition("/")[2],)
        found[model] = found.get(model, 0.0) + count
    return found


def _endpoints(window: Window, listing: Listing | None) -> list[EndpointRow]:
    tokens = window.rates(ENDPOINT_TOKENS, "pool", "endpoint")
    if listing is None:
        unknown = {"state": None, "running": None, "waiting": None, "kv_in_use": None}
        return [
            EndpointRow(pool=pool, address=address, tokens=rate, **unknown)
            for (pool, address), rate in sorted(tokens.items())
        ]
    return [
        EndpointRow(
            pool=each["pool"],
            address=each["address"],
            state=each["state"],
            running=each["load"]["running"],
            waiting=each["load"]["waiting"],
            kv_in_use=each["load"]["kv_in_use"],
            tokens=tokens.get((each["pool"], each["address"]), 0.0),
        )
        for each in listing["data"]
    ]


def _tenants(window: Window) -> list[TenantRow]:
    """Empty where the proxy's metrics know no tenants."""
    requests, tokens_in, tokens_out = (
        window.rates(f"proxy_tenant_{what}_total", "tenant")
        for what in ("requests", "prompt_tokens", "completion_tokens")
    )
    return [
        TenantRow(
            name=tenant[0],
            requests=rate,
            tokens_in=tokens_in.get(tenant, 0.0),
            tokens_out=tokens_out.get(tenant, 0.0),
        )
        for tenant, rate in sorted(requests.items())
    ]
