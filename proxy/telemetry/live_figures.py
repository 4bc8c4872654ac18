"""The figures of the live status: `triton-openai top` and the page show all that are here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from proxy.domain.output import FinishReason
from proxy.telemetry.metrics_window import Groups, Page, Window, summed

REQUESTS, ACTIVE = "proxy_requests_total", "proxy_requests_active"
TOKENS_IN, TOKENS_OUT = "proxy_prompt_tokens_total", "proxy_completion_tokens_total"
TTFT, LAG = "proxy_time_to_first_token_seconds", "proxy_event_loop_lag_seconds"
ENDPOINT_TOKENS, WAITING = "proxy_endpoint_tokens_total", "proxy_fair_queue_waiting"
TENANT_REQUESTS, TENANT_TOKENS_IN, TENANT_TOKENS_OUT = (
    f"proxy_tenant_{what}_total" for what in ("requests", "prompt_tokens", "completion_tokens")
)
READY, REJECTIONS = "proxy_ready", "proxy_rejections_total"
OPEN_BATCHES, BATCH_LINES = "proxy_open_batches", "proxy_batch_lines_total"
COUNTERS = (REQUESTS, TOKENS_IN, TOKENS_OUT, ENDPOINT_TOKENS, REJECTIONS, BATCH_LINES)
OF_TENANTS = (TENANT_REQUESTS, TENANT_TOKENS_IN, TENANT_TOKENS_OUT)
GAUGES = (ACTIVE, WAITING, READY, OPEN_BATCHES)
NAMES = (*COUNTERS, *OF_TENANTS, *GAUGES, f"{TTFT}_bucket", f"{LAG}_bucket")
"""The names of all samples that are read."""
# Generated tokens with those of running requests. The metric counts a request when it ends.
TOKENS_SO_FAR = "tokens_so_far"
# Outcomes that are not failures: the answer ended, or its client disconnected.
ENDED = {*(reason.value for reason in FinishReason), "content_filter", "abandoned"}


Json = dict[str, Any]


def shown(heading: str, unit: str = "number") -> Any:
    """A column of `top` and of the page. unit: `number`, `failures` or `seconds`."""
    return field(metadata={"heading": heading, "unit": unit})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """waiting: None without a fair queue. TTFT: None without a first token in the window."""

    model: str
    requests_per_s: float = shown("req/s")
    failures_per_s: float = shown("failed/s", "failures")
    prompt_tokens_per_s: float = shown("tok in/s")
    running: float = shown("run")
    waiting: float | None = shown("wait")
    ttft_p50_s: float | None = shown("TTFT p50", "seconds")
    ttft_p99_s: float | None = shown("p99", "seconds")
    completion_tokens_per_s: float = shown("tok out/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFigures:
    tenant: str
    requests_per_s: float = shown("req/s")
    prompt_tokens_per_s: float = shown("tok in/s")
    completion_tokens_per_s: float = shown("tok out/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFigures:
    """open: of all proxies that share the files. Lines: of this one."""

    batches: str
    open: float = shown("open")
    completed_per_s: float = shown("lines/s")
    failed_per_s: float = shown("failed/s", "failures")


@dataclass(frozen=True, kw_only=True)
class LiveFrame:
    """What a proxy has done in the window, which ends now. An operator's has more."""

    is_ready: bool
    window_s: float
    loop_lag_p99_s: float | None
    totals: Json
    models: list[ModelFigures]
    tenants: list[TenantFigures]
    batches: list[BatchFigures]
    endpoints: list[Json]
    errors: list[Json]


def _columns(kind: type) -> list[dict[str, str]]:
    return [{"name": one.name, **one.metadata} for one in fields(kind) if one.metadata]


COLUMNS = {
    "models": _columns(ModelFigures),
    "tenants": _columns(TenantFigures),
    "batches": _columns(BatchFigures),
}
SUMS = [each["name"] for each in COLUMNS["models"] if each["unit"] != "seconds"]
SERIES = ("at", *SUMS, "ttft_p50_s", "ttft_p99_s")


def totals(window: Window) -> Json:
    """A point of SERIES, over all models. at: Unix time."""
    models = [*model_figures(window)]
    sums = {name: sum(getattr(one, name) or 0.0 for one in models) for name in SUMS}
    median, slowest = (window.quantiles(TTFT, share).get(()) for share in (0.5, 0.99))
    return {"at": round(time.time(), 1), **sums, "ttft_p50_s": median, "ttft_p99_s": slowest}


def live_frame(window: Window) -> LiveFrame:
    errors = summed(window.page, REJECTIONS, "model", "reason")
    tokens = window.rates(ENDPOINT_TOKENS, "pool", "endpoint")
    return LiveFrame(
        is_ready=bool(summed(window.page, READY).get((), 0.0)),
        window_s=window.seconds,
        loop_lag_p99_s=window.quantiles(LAG, 0.99).get(()),
        totals=totals(window),
        models=[*model_figures(window)],
        tenants=[*tenant_figures(window)],
        batches=[*batch_figures(window)],
        endpoints=[{"pool": p, "address": a, "tokens_per_s": n} for (p, a), n in tokens.items()],
        errors=[{"model": m, "code": c, "total": n} for (m, c), n in sorted(errors.items())],
    )


def model_figures(window: Window) -> Iterator[ModelFigures]:
    running = summed(window.page, ACTIVE, "model")
    waiting = _waiting(window.page)
    outcomes = window.rates(REQUESTS, "model", "outcome")
    prompt, completion = window.rates(TOKENS_IN, "model"), window.rates(TOKENS_SO_FAR, "model")
    medians, slowest = (window.quantiles(TTFT, share, "model") for share in (0.5, 0.99))
    for model in sorted({group[:1] for group in outcomes} | running.keys()):
        own = {outcome: rate for (name, outcome), rate in outcomes.items() if (name,) == model}
        yield ModelFigures(
            model=model[0],
            requests_per_s=sum(own.values()),
            failures_per_s=sum(rate for outcome, rate in own.items() if outcome not in ENDED),
            prompt_tokens_per_s=prompt.get(model, 0.0),
            completion_tokens_per_s=completion.get(model, 0.0),
            running=running.get(model, 0.0),
            waiting=waiting.get(model),
            ttft_p50_s=medians.get(model),
            ttft_p99_s=slowest.get(model),
        )


def _waiting(page: Page) -> Groups:
    """By Triton's name of the model, which is most often the public one, too."""
    found: Groups = {}
    for (queue,), count in summed(page, WAITING, "queue").items():
        model = (queue.partition("/")[2],)
        found[model] = found.get(model, 0.0) + count
    return found


def tenant_figures(window: Window) -> Iterator[TenantFigures]:
    """Empty where the proxy's metrics know no tenants."""
    prompt, completion = (
        window.rates(name, "tenant") for name in (TENANT_TOKENS_IN, TENANT_TOKENS_OUT)
    )
    for tenant, rate in sorted(window.rates(TENANT_REQUESTS, "tenant").items()):
        yield TenantFigures(
            tenant=tenant[0],
            requests_per_s=rate,
            prompt_tokens_per_s=prompt.get(tenant, 0.0),
            completion_tokens_per_s=completion.get(tenant, 0.0),
        )


def batch_figures(window: Window) -> Iterator[BatchFigures]:
    """One row for all batches. None where no batch runs."""
    lines = window.rates(BATCH_LINES, "outcome")
    open = summed(window.page, OPEN_BATCHES).get((), 0.0)
    if open or any(lines.values()):
        yield BatchFigures(
            batches="of all tenants",
            open=open,
            completed_per_s=lines.get(("completed",), 0.0),
            failed_per_s=lines.get(("failed",), 0.0),
        )
