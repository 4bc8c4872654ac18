"""Figures of models and tenants for `triton-openai top` and for the live status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
COUNTERS = (REQUESTS, TOKENS_IN, TOKENS_OUT, ENDPOINT_TOKENS, REJECTIONS)
OF_TENANTS = (TENANT_REQUESTS, TENANT_TOKENS_IN, TENANT_TOKENS_OUT)
NAMES = (*COUNTERS, *OF_TENANTS, ACTIVE, WAITING, READY, f"{TTFT}_bucket", f"{LAG}_bucket")
"""The names of all samples that are read."""
# Outcomes that are not failures: the answer ended, or its client disconnected.
ENDED = {*(reason.value for reason in FinishReason), "content_filter", "abandoned"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """waiting: None without a fair queue. TTFT: None without a first token in the window."""

    model: str
    requests_per_s: float
    failures_per_s: float
    prompt_tokens_per_s: float
    completion_tokens_per_s: float
    running: float
    waiting: float | None
    ttft_p50_s: float | None
    ttft_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFigures:
    tenant: str
    requests_per_s: float
    prompt_tokens_per_s: float
    completion_tokens_per_s: float


def model_figures(window: Window, tokens_out: str = TOKENS_OUT) -> Iterator[ModelFigures]:
    """tokens_out: the counter of generated tokens."""
    running = summed(window.page, ACTIVE, "model")
    waiting = _waiting(window.page)
    outcomes = window.rates(REQUESTS, "model", "outcome")
    prompt, completion = window.rates(TOKENS_IN, "model"), window.rates(tokens_out, "model")
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
