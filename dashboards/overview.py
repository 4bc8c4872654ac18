"""Is all well? Objectives, what callers see, and which server is away."""

from __future__ import annotations

from dashboards.panel import Dashboard, Panel, Query, Row, Variable
from dashboards.promql import MODEL, quantiles, rate, total

BUDGET = "on (slo) group_left () (1 - triton_openai:slo_objective)"

OBJECTIVES = Row(
    title="Objectives",
    panels=(
        Panel(
            title="Failures, of all requests of an hour",
            note="The runbook says what counts as a failure, and what the objectives are.",
            unit="percentunit",
            queries=(Query(expr="triton_openai:slo_errors:ratio1h", legend="{{slo}} {{model}}"),),
        ),
        Panel(
            title="Speed at which error budgets are used",
            note="At 1, the budget of 30 days lasts 30 days. Alerts begin at 14.4 within an hour, "
            "6 within six hours, and 1 within three days.",
            queries=tuple(
                Query(
                    expr=f"triton_openai:slo_errors:ratio{window} / {BUDGET}",
                    legend=f"{{{{slo}}}} {{{{model}}}} {window}",
                )
                for window in ("1h", "6h", "3d")
            ),
        ),
        Panel(
            title="Alerts",
            queries=(
                Query(
                    expr='count by (alertname, severity) (ALERTS{alertstate="firing"})',
                    legend="{{alertname}} ({{severity}})",
                ),
            ),
        ),
    ),
)

CALLERS = Row(
    title="Callers",
    panels=(
        Panel(
            title="Requests a second, by how they ended",
            note="A finish reason, an error code, or `abandoned`: the client disconnected.",
            unit="reqps",
            is_stacked=True,
            queries=(
                Query(
                    expr=rate("proxy_requests_total", "outcome", where=MODEL), legend="{{outcome}}"
                ),
            ),
        ),
        Panel(
            title="Time to first token",
            note="From the request to its first event. A point is one traced request.",
            unit="s",
            queries=quantiles("proxy_time_to_first_token_seconds", has_exemplars=True),
        ),
        Panel(
            title="Request duration",
            note="From the request to its last event. A point is one traced request.",
            unit="s",
            queries=quantiles("proxy_request_duration_seconds", has_exemplars=True),
        ),
        Panel(
            title="Tokens a second",
            note="Counted by the engines.",
            queries=(
                Query(expr=rate("proxy_completion_tokens_total", where=MODEL), legend="completion"),
                Query(expr=rate("proxy_prompt_tokens_total", where=MODEL), legend="prompt"),
                Query(
                    expr=rate("proxy_cached_prompt_tokens_total", where=MODEL),
                    legend="prompt, from the cache",
                ),
            ),
        ),
        Panel(
            title="Requests now",
            queries=(
                Query(
                    expr=total("proxy_requests_active", "model", where=MODEL), legend="{{model}}"
                ),
            ),
        ),
        Panel(
            title="HTTP responses a second, by status",
            unit="reqps",
            is_stacked=True,
            queries=(
                Query(expr=rate("proxy_http_responses_total", "status"), legend="{{status}}"),
            ),
        ),
    ),
)

REFUSALS = Row(
    title="Refusals",
    panels=(
        Panel(
            title="Errors a second, by code",
            note="HTTP requests that got an error instead of an answer.",
            unit="reqps",
            queries=(Query(expr=rate("proxy_rejections_total", "reason"), legend="{{reason}}"),),
        ),
        Panel(
            title="Limits and queues that refused, a second",
            unit="reqps",
            queries=(
                Query(expr=rate("proxy_limit_refusals_total", "limit"), legend="limit {{limit}}"),
                Query(
                    expr=rate("proxy_fair_queue_refusals_total", "queue", "reason"),
                    legend="{{queue}} {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Callers a second, by how they were identified",
            unit="reqps",
            queries=(
                Query(expr=rate("proxy_authentications_total", "outcome"), legend="{{outcome}}"),
            ),
        ),
    ),
)

SERVERS = Row(
    title="Servers",
    panels=(
        Panel(
            title="What answers",
            note="1 where it does. `up`: /metrics; `ready`: every model can be served; `ledger`: "
            "the state of limits; `callers`: the store of keys, or the issuer of tokens.",
            queries=(
                Query(expr='up{job=~"triton-openai.*"}', legend="up {{instance}}"),
                Query(expr="proxy_ready", legend="ready {{instance}}"),
                Query(expr="proxy_ledger_up", legend="ledger {{instance}}"),
                Query(
                    expr="proxy_authentication_source_up", legend="callers {{source}} {{instance}}"
                ),
            ),
        ),
        Panel(
            title="models.yaml in force",
            note="0: the file was rejected when it was read last.",
            queries=(Query(expr="proxy_models_file_valid", legend="{{instance}}"),),
        ),
        Panel(
            title="Event loop lag",
            note="How late the event loop of a proxy ran a timer.",
            unit="s",
            queries=quantiles("proxy_event_loop_lag_seconds", where=""),
        ),
        Panel(
            title="Idempotency keys, requests a second",
            unit="reqps",
            queries=(
                Query(
                    expr=rate("proxy_idempotent_requests_total", "outcome"), legend="{{outcome}}"
                ),
            ),
        ),
        Panel(
            title="Answers kept for idempotency keys",
            unit="bytes",
            queries=(
                Query(expr=total("proxy_idempotent_held_bytes"), legend="in memory"),
                Query(expr=total("proxy_idempotent_stored_bytes"), legend="for later"),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    name="overview",
    title="overview",
    note="Objectives, what callers see, refusals, and which server is away.",
    variables=(Variable(label="model", metric="proxy_requests_total", title="Model"),),
    rows=(OBJECTIVES, CALLERS, REFUSALS, SERVERS),
)
